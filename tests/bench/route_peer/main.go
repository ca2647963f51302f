// Command route_peer is a server of the route bench: grpc-go, every response of which is the bytes that the first line of
// standard input has in hexadecimal. It prints its port, and ends with its standard input.
package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"log"
	"net"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
)

// ready passes bytes through: nothing is encoded or decoded.
type ready struct{}

func (ready) Name() string { return "proto" }

func (ready) Marshal(value any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*value.(*[]byte))}, nil
}

func (ready) Unmarshal(data mem.BufferSlice, value any) error {
	*value.(*[]byte) = data.Materialize()
	return nil
}

func main() {
	commands := bufio.NewReader(os.Stdin)
	line, err := commands.ReadString('\n')
	if err != nil {
		log.Fatal(err)
	}
	response, err := hex.DecodeString(line[:len(line)-1])
	if err != nil {
		log.Fatal(err)
	}
	encoding.RegisterCodecV2(ready{})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(grpc.ForceServerCodecV2(ready{}))
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "pointsman.v1.RouteService",
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{
			MethodName: "GetTopicRoute",
			Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
				var request []byte
				if err := decode(&request); err != nil {
					return nil, err
				}
				return &response, nil
			},
		}},
	}, nil)
	go func() { log.Fatal(server.Serve(listener)) }()
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	_, _ = io.Copy(io.Discard, commands)
	server.Stop()
}
