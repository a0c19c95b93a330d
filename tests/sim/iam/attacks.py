"""What a hostile job tries with the service account of its host; each line it prints is the outcome."""

STANDARD_LIBRARY = """
import json, os, urllib.error, urllib.parse, urllib.request

META = "http://metadata.google.internal/computeMetadata/v1/instance/service-accounts/default/token"
META = META.replace("metadata.google.internal", os.environ["GCE_METADATA_HOST"])
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
with direct.open(urllib.request.Request(META, headers={"Metadata-Flavor": "Google"})) as reply:
    TOKEN = json.load(reply)["access_token"]
WAYS = [("https://storage.googleapis.com", TOKEN), (os.environ["STORAGE_EMULATOR_HOST"], "")]

def send(what, method, path, body=None, kind="application/json"):
    for host, token in WAYS:
        headers = {"Content-Type": kind} | ({"Authorization": "Bearer " + token} if token else {})
        request = urllib.request.Request(host + path, body, headers, method=method)
        try:
            with urllib.request.urlopen(request) as reply:
                print(what, reply.status, flush=True)
        except urllib.error.HTTPError as error:
            text = error.read().decode()
            print(what, error.code, text if "storage.objects.delete" not in text else "delete", flush=True)

def quoted(name):
    return urllib.parse.quote(name, safe="")

def upload(bucket, name, kind="media"):
    return "/upload/storage/v1/b/%s/o?uploadType=%s&name=%s" % (bucket, kind, quoted(name))

def at(bucket, name):
    return "/storage/v1/b/%s/o/%s" % (bucket, quoted(name))
"""
"""Sends requests by the proxy with the host's token, and directly without one."""

GOOGLE_CLIENT = """
import os
from google.api_core.exceptions import Forbidden
from google.cloud import storage

bucket = storage.Client().bucket(os.environ["RUNS"])
for attempt in (
    lambda: bucket.blob(os.environ["VICTIM"] + "run.json").upload_from_string("{}"),
    lambda: bucket.blob(os.environ["VICTIM"] + "run.json").delete(),
):
    try:
        attempt()
        print("done")
    except Forbidden as error:
        print(error.code, error.message.rsplit("prettyPrint=false: ", 1)[-1])
"""
