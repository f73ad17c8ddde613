// The client that KEDA uses for external scalers, for the tests of crates/operator.
//
//	keda ADDRESS NAMESPACE PROVISIONER
//
// asks once for the metric and its value, then prints each message of the stream. It ends with its standard input.
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	pb "github.com/kedacore/keda/v2/pkg/scalers/externalscaler"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

func main() {
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}

func run(address, namespace, provisioner string) error {
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	scaler := pb.NewExternalScalerClient(connection)
	object := &pb.ScaledObjectRef{
		Name:           "scaled",
		Namespace:      namespace,
		ScalerMetadata: map[string]string{"provisioner": provisioner},
	}
	spec, err := scaler.GetMetricSpec(ctx, object)
	if err != nil {
		return err
	}
	metric := spec.MetricSpecs[0]
	fmt.Println("metric", metric.MetricName, metric.TargetSize)
	values, err := scaler.GetMetrics(ctx, &pb.GetMetricsRequest{ScaledObjectRef: object, MetricName: metric.MetricName})
	if err != nil {
		return err
	}
	fmt.Println("value", values.MetricValues[0].MetricName, values.MetricValues[0].MetricValue)
	active, err := scaler.IsActive(ctx, object)
	if err != nil {
		return err
	}
	fmt.Println("active", active.Result)
	stream, err := scaler.StreamIsActive(ctx, object)
	if err != nil {
		return err
	}
	for {
		message, err := stream.Recv()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		fmt.Println("stream", message.Result)
	}
}
