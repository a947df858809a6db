import sys

import grpc

address, ca = sys.argv[1:]
credentials = grpc.ssl_channel_credentials(open(ca, "rb").read())
with grpc.secure_channel(address, credentials) as channel:
    place = channel.unary_unary("/shop.Orders/Place")
    # One connection, and yet both servers have work: requests are shared, not connections.
    for answer in sorted(place(b"tea", timeout=60) for _ in range(2)):
        print(answer.decode())
