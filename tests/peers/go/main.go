// A client of grpc-go that does what each line of its input requests (tests/peers/peer_process.py).
//
//	peer ADDRESS PROTO_FOLDER [CA_FILE]
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/bufbuild/protocompile"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

type order struct {
	Do       string
	Method   string
	Requests []json.RawMessage
	Millis   int64
}

type outcome struct {
	Code     int             `json:"code"`
	Message  string          `json:"message,omitempty"`
	Reasons  []string        `json:"reasons,omitempty"`
	Response json.RawMessage `json:"response,omitempty"`
	Codes    []int           `json:"codes,omitempty"`
}

type peer struct {
	channel  *grpc.ClientConn
	services map[string]protoreflect.ServiceDescriptor
	stream   grpc.ClientStream
	response protoreflect.MessageDescriptor
	cancel   context.CancelFunc
}

func main() {
	security := insecure.NewCredentials()
	if len(os.Args) > 3 {
		fromFile, err := credentials.NewClientTLSFromFile(os.Args[3], "")
		check(err)
		security = fromFile
	}
	reconnect := grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, MaxDelay: time.Second, Multiplier: 1.5}}
	channel, err := grpc.NewClient(os.Args[1], grpc.WithTransportCredentials(security), grpc.WithConnectParams(reconnect),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	check(err)
	me := &peer{channel: channel, services: read(os.Args[2])}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<26)
	for lines.Scan() {
		var given order
		check(json.Unmarshal(lines.Bytes(), &given))
		text, err := json.Marshal(me.do(given))
		check(err)
		fmt.Println(string(text))
	}
}

// read compiles the services of the .proto files.
func read(folder string) map[string]protoreflect.ServiceDescriptor {
	compiler := protocompile.Compiler{
		Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{folder}}),
	}
	files, err := compiler.Compile(context.Background(),
		"pointsman/v1/route_service.proto", "pointsman/v1/registration_service.proto")
	check(err)
	found := map[string]protoreflect.ServiceDescriptor{}
	for _, file := range files {
		for i := range file.Services().Len() {
			found[string(file.Services().Get(i).FullName())] = file.Services().Get(i)
		}
	}
	return found
}

func (p *peer) do(given order) outcome {
	switch given.Do {
	case "call":
		return p.call(given)
	case "calls":
		return p.calls(given)
	case "open":
		method := p.method(given.Method)
		ctx, cancel := limited(given.Millis)
		stream, err := p.channel.NewStream(ctx, kind(method), given.path())
		p.stream, p.response, p.cancel = stream, method.Output(), cancel
		for _, each := range given.Requests {
			if err == nil {
				err = stream.SendMsg(message(method.Input(), each))
			}
		}
		if err == nil && !method.IsStreamingClient() {
			err = stream.CloseSend()
		}
		return ended(err)
	case "send":
		method := p.method(given.Method)
		return ended(p.stream.SendMsg(message(method.Input(), given.Requests[0])))
	case "receive":
		received := dynamicpb.NewMessage(p.response)
		if err := p.stream.RecvMsg(received); err != nil {
			return ended(err)
		}
		return outcome{Response: shown(received)}
	case "half_close":
		return ended(p.stream.CloseSend())
	case "cancel":
		p.cancel()
		return outcome{}
	}
	panic("unknown: " + given.Do)
}

// call is unary, or streams requests to one response.
func (p *peer) call(given order) outcome {
	method := p.method(given.Method)
	ctx, cancel := limited(given.Millis)
	defer cancel()
	received := dynamicpb.NewMessage(method.Output())
	if !method.IsStreamingClient() {
		if err := p.channel.Invoke(ctx, given.path(), message(method.Input(), given.Requests[0]), received); err != nil {
			return ended(err)
		}
		return outcome{Response: shown(received)}
	}
	stream, err := p.channel.NewStream(ctx, kind(method), given.path())
	if err != nil {
		return ended(err)
	}
	for _, each := range given.Requests {
		if stream.SendMsg(message(method.Input(), each)) != nil {
			break // the status is what RecvMsg returns
		}
	}
	_ = stream.CloseSend()
	if err := stream.RecvMsg(received); err != nil {
		return ended(err)
	}
	return outcome{Response: shown(received)}
}

// calls sends all requests at the same time.
func (p *peer) calls(given order) outcome {
	codes := make([]int, len(given.Requests))
	var all sync.WaitGroup
	for i, each := range given.Requests {
		all.Add(1)
		go func() {
			defer all.Done()
			codes[i] = p.call(order{Method: given.Method, Requests: []json.RawMessage{each}}).Code
		}()
	}
	all.Wait()
	return outcome{Codes: codes}
}

func (o order) path() string { return "/pointsman.v1." + o.Method }

func (p *peer) method(name string) protoreflect.MethodDescriptor {
	service, method, _ := strings.Cut(name, "/")
	return p.services["pointsman.v1."+service].Methods().ByName(protoreflect.Name(method))
}

func kind(method protoreflect.MethodDescriptor) *grpc.StreamDesc {
	return &grpc.StreamDesc{ClientStreams: method.IsStreamingClient(), ServerStreams: method.IsStreamingServer()}
}

func limited(millis int64) (context.Context, context.CancelFunc) {
	if millis == 0 {
		return context.WithCancel(context.Background())
	}
	return context.WithTimeout(context.Background(), time.Duration(millis)*time.Millisecond)
}

func message(kind protoreflect.MessageDescriptor, content []byte) proto.Message {
	made := dynamicpb.NewMessage(kind)
	check(protojson.Unmarshal(content, made))
	return made
}

func shown(received proto.Message) json.RawMessage {
	text, err := protojson.Marshal(received)
	check(err)
	return text
}

// ended returns how a call ended. io.EOF of a stream has the code of success.
func ended(err error) outcome {
	if err == nil || err.Error() == "EOF" {
		return outcome{}
	}
	failed := status.Convert(err)
	found := outcome{Code: int(failed.Code()), Message: failed.Message()}
	for _, each := range failed.Details() {
		if info, is := each.(*errdetails.ErrorInfo); is {
			found.Reasons = append(found.Reasons, info.GetReason())
		}
	}
	return found
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
