import tpuctl

with tpuctl.Client() as client:
    node = client.up("v3-8")
    client.upload("digits", ".demo/digits")
    run = client.submit("jobs/digits.py")
    for line in run.logs(follow=True):
        print(line.text)
    run.wait(check=True)
    run.pull(".demo/result")
    node.down()
