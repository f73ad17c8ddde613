module example.org/interop

go 1.24

require (
	github.com/coder/websocket v1.8.14
	github.com/hashicorp/yamux v0.1.2
	google.golang.org/protobuf v1.36.12
	storj.io/drpc v0.0.34
)

require github.com/zeebo/errs v1.2.2 // indirect

tool google.golang.org/protobuf/cmd/protoc-gen-go
