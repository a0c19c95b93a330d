"""Serves the Cloud TPU API of the simulator, over gRPC and over REST.

A call comes in by `grpc_api` or by `rest_api` (whose paths are in `http_rules`, those of API v1 in
`api_v1`); `service` finds its function in `methods`, which calls the world; `messages` turns the world's
records into protobuf messages of the client's API version.
"""
