"""Secrets as services issue them, and harmless texts that resemble them.

Each sample is put together from parts: scanners, ours included, find none in this file.
"""

from __future__ import annotations

LETTERS = "aB3dE5gH7jK9mN1pQ2rS4tU6vW8xY0zA"
HEX = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"
KEY_LINE = HEX + LETTERS


def private_key(kind: str = "OPENSSH ") -> str:
    """Return a text in the format of a private key."""
    return (
        f"-----{'BEGIN'} {kind}PRIVATE KEY-----\n{KEY_LINE}\n{KEY_LINE[:30]}\n-----END {kind}PRIVATE KEY-----"
    )


TOKENS = {
    # kind -> samples that are recognised wherever they occur
    "an AWS access key": ["AK" + "IAIOSFODNN7ABCDEFG", "AS" + "IAQWERTYUIOPASDFGH"],
    "a GitHub token": [f"gh{letter}_{LETTERS}abcd" for letter in "posur"]
    + [f"github{'_pat_'}11{LETTERS}_{LETTERS}"],
    "a GitLab token": ["gl" + f"pat-{LETTERS[:20]}"],
    "a Hugging Face token": ["h" + f"f_{LETTERS}Qx"],
    "an API key": [
        "s" + f"k-{LETTERS}{LETTERS[:16]}", "s" + f"k-proj-{LETTERS}_{LETTERS}",
        "s" + f"k-ant-api03-{LETTERS}-A",
        "s" + f"k-{HEX}", "gs" + f"k_{LETTERS}{LETTERS}", "r" + f"8_{LETTERS}abcde", "KG" + f"AT_{HEX}",
        "da" + f"pi{HEX}", "S" + f"G.{LETTERS[:22]}.{LETTERS}",
    ],
    "a Google credential": [
        "AI" + f"zaSy{LETTERS}q", "ya" + f"29.a0{LETTERS}", "GOC" + f"SPX-{LETTERS[:28]}",
        "1/" + f"/0{LETTERS}{LETTERS}",
    ],
    "a Slack token": ["xo" + f"xb-123456789012-{LETTERS}", "xo" + f"xp-1-2-{LETTERS}"],
    "a Stripe key": ["s" + f"k_live_{LETTERS}", "r" + f"k_test_{LETTERS}"],
    "a package registry's token": ["py" + f"pi-AgEIcHlwaS5vcmc{LETTERS}{LETTERS}", "np" + f"m_{LETTERS}abcd"],
    "an age key": ["AGE-" + "SECRET-KEY-1" + ("QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L" * 2)[:58]],
    "a JSON web token": ["ey" + f"JhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.{LETTERS}"],
    "a private key": [private_key(kind) for kind in ("", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED ")],
}  # fmt: skip
URLS = [
    # text, the secret in it
    ("postgres" + "://ada:hunter2@db.example.com/runs", "hunter2"),
    ("redis" + "://:p4ss@10.0.0.1:6379/0", "p4ss"),
    ("https" + "://ada:p@ss:w0rd@git.example.com/x.git", "p@ss:w0rd"),
    (f"https://storage.googleapis.com/b/o?X-Goog-Expires=9&X-Goog-{'Signature'}={HEX}", HEX),
    (f"Authorization: Bearer {LETTERS}", LETTERS),
]
OPTIONS = [
    # arguments, the secret in them
    (["--api-key=abc"], "abc"), (["--api-key", "abc"], "abc"), (["--api_key", "abc def"], "abc def"),
    (["--password", "12345"], "12345"), (["--password", "-dash"], "-dash"), (["--db-password=a=b"], "a=b"),
    (["-password", "hunter2"], "hunter2"), (["wandb.api_key=abc"], "abc"), (["+logger.secret=abc"], "abc"),
    (["--token", "hunter2"], "hunter2"), (["--hf-token=abc"], "abc"), (["--auth", "ada:hunter2"],
    "ada:hunter2"),
    (["--hfAuth", "hunter2"], "hunter2"), (["--aws-pass", "hunter2"], "hunter2"), (["--pat", "hunter2"],
    "hunter2"),
    (["--aws-secret-access-key", f"{LETTERS}/{HEX}"], f"{LETTERS}/{HEX}"), (["--key", LETTERS], LETTERS),
    (["--wandb-key", HEX + "12345678"], HEX + "12345678"), (["--passphrase2=abc"], "abc"),
    (["--set", "db.password=abc,rate=1"], "abc,rate=1"), (["--config", '{"api_key": "a b", "rate": 1}'],
    "a b"),
    (["--ssh-private", HEX], HEX), (["--clientSecret", "abc"], "abc"), (["--CREDENTIALS", "abc"], "abc"),
]  # fmt: skip
HARMLESS = [
    # arguments of training scripts, none of them a secret
    ["--epochs", "30", "--learning-rate=0.1", "--batch_size", "128"],
    ["--max-tokens", "512", "--num_tokens=1000000", "--tokens", "4096", "--tokenizer", "bert-base-uncased"],
    ["--pad-token", "<pad>", "--eos-token=</s>", "--mask-token", "[MASK]", "--unk-token", "unknown-word"],
    ["--end-token", "endoftext", "--image-token", "image_placeholder"],
    ["--key", "42", "--sort-key", "length", "--image-key=image/encoded", "--seed_key", "0"],
    ["--passes", "3", "--single-pass", "--pass-through=true", "--author", "Ada Lovelace"],
    ["--monitor-key", "val_accuracy_top_5", "--keyboard", "qwerty", "--monkey", "capuchin2000000"],
    ["--password-file", "p.txt", "--token-path=/run/secrets/token", "--secret-name", "projects/p/secrets/s"],
    ["--api-key", "$API_KEY", "--token=${TOKEN}", "--password", "***"],
    ["--data", "gs://bucket/datasets/digits/1.0.0", "--commit", "3f786850e387550fdab836ed7e6dc881de23001b"],
    ["--run", "resnet50-20261122-120000", "--id", "123e4567-e89b-12d3-a456-426614174000"],
    ["--model", "sk-learn-contrib-some-long-package-name", "--task-0123456789012345678901234"],
    ["--proxy", "http://127.0.0.1:8080", "--image", "europe-docker.pkg.dev/p/r/i@sha256:" + HEX + HEX],
    ["--secret", "", "--use-secret", "--no-auth", "--auth", "basic", "--token", "12345678"],
]
