// The Go SDK: `bench` over stdio, `bench PORT` over HTTP, stateless and in JSON.
package main

import (
	"context"
	"log"
	"net/http"
	"os"
	"strconv"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type numbers struct {
	A int `json:"a"`
	B int `json:"b"`
}

type sum struct {
	Result int `json:"result"`
}

type words struct {
	Text string `json:"text"`
}

func text(value string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: value}}}
}

func add(_ context.Context, _ *mcp.CallToolRequest, in numbers) (*mcp.CallToolResult, sum, error) {
	return text(strconv.Itoa(in.A + in.B)), sum{in.A + in.B}, nil
}

func echo(_ context.Context, _ *mcp.CallToolRequest, in words) (*mcp.CallToolResult, any, error) {
	return text(in.Text), nil, nil
}

func main() {
	server := mcp.NewServer(&mcp.Implementation{Name: "bench", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "add_async", Description: "Add two numbers."}, add)
	mcp.AddTool(server, &mcp.Tool{Name: "echo", Description: "Return a text."}, echo)
	if len(os.Args) < 2 {
		log.Fatal(server.Run(context.Background(), &mcp.StdioTransport{}))
	}
	options := &mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true}
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, options)
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Args[1], handler))
}
