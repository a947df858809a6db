import sys
from concurrent import futures

import grpc

port = sys.argv[1]


def place(request, context):
    return b"%s ordered from the server on %s" % (request, port.encode())


server = grpc.server(futures.ThreadPoolExecutor(4))
methods = {"Place": grpc.unary_unary_rpc_method_handler(place)}
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("shop.Orders", methods),))
server.add_insecure_port(f"127.0.0.1:{port}")
server.start()
server.wait_for_termination()
