// Ranks two items with a served model and prints the order.
//
//	go run . HOST:PORT MODEL
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	pb "example.com/rank/tfserving"
)

// ids is a feature of strings: one id, or the ids of a list filled up with "" to its max_length.
func ids(values ...string) *pb.Feature {
	list := &pb.BytesList{}
	for _, value := range values {
		list.Value = append(list.Value, []byte(value))
	}
	return &pb.Feature{Kind: &pb.Feature_BytesList{BytesList: list}}
}

// numbers is a packed feature: all numerics of a scope, in the order of schema.json.
func numbers(values ...float32) *pb.Feature {
	return &pb.Feature{Kind: &pb.Feature_FloatList{FloatList: &pb.FloatList{Value: values}}}
}

func example(features map[string]*pb.Feature) *pb.Example {
	return &pb.Example{Features: &pb.Features{Feature: features}}
}

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: go run . HOST:PORT MODEL")
	}
	target, model := os.Args[1], os.Args[2]

	list := &pb.ExampleListWithContext{
		Context: example(map[string]*pb.Feature{
			"top":             ids("food"),
			"sub":             ids("bread"),
			"context_numeric": numbers(31), // age
		}),
		Examples: []*pb.Example{
			example(map[string]*pb.Feature{
				"example_numeric": numbers(9.5, 4), // price, stars
				"brand":           ids("acme"),
				"tags":            ids("new", "", ""),
			}),
			example(map[string]*pb.Feature{
				"example_numeric": numbers(3, 5),
				"brand":           ids("bolt"),
				"tags":            ids("", "", ""),
			}),
		},
	}
	serialized, err := proto.Marshal(list)
	if err != nil {
		log.Fatal(err)
	}

	connection, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	answer, err := pb.NewPredictionServiceClient(connection).Predict(ctx, &pb.PredictRequest{
		ModelSpec: &pb.ModelSpec{Name: model, SignatureName: "rank"},
		Inputs: map[string]*pb.TensorProto{"inputs": {
			Dtype:       pb.DataType_DT_STRING,
			TensorShape: &pb.TensorShapeProto{Dim: []*pb.TensorShapeProto_Dim{{Size: 1}}},
			StringVal:   [][]byte{serialized},
		}},
	})
	if err != nil {
		log.Fatal(err)
	}

	// A server that batches may pad the list: only the first `valid` places mean something.
	valid := int(answer.Outputs["valid"].IntVal[0])
	for place := 0; place < valid; place++ {
		item := answer.Outputs["order"].IntVal[place]
		score := answer.Outputs["scores"].FloatVal[place]
		fmt.Printf("%d. item %d, score %.6f\n", place+1, item, score)
	}
}
