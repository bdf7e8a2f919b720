package example;

import com.google.protobuf.ByteString;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import tfserving.BytesList;
import tfserving.DataType;
import tfserving.Example;
import tfserving.ExampleListWithContext;
import tfserving.Feature;
import tfserving.Features;
import tfserving.FloatList;
import tfserving.ModelSpec;
import tfserving.PredictRequest;
import tfserving.PredictResponse;
import tfserving.PredictionServiceGrpc;
import tfserving.TensorProto;
import tfserving.TensorShapeProto;

/** Ranks two items with a served model and prints the order. */
public final class Rank {
  /** One id, or the ids of a list filled up with "" to its max_length. */
  private static Feature ids(String... values) {
    BytesList.Builder list = BytesList.newBuilder();
    for (String value : values) {
      list.addValue(ByteString.copyFromUtf8(value));
    }
    return Feature.newBuilder().setBytesList(list).build();
  }

  /** A packed feature: all numerics of a scope, in the order of schema.json. */
  private static Feature numbers(Float... values) {
    return Feature.newBuilder()
        .setFloatList(FloatList.newBuilder().addAllValue(List.of(values)))
        .build();
  }

  private static Example example(Map<String, Feature> features) {
    return Example.newBuilder()
        .setFeatures(Features.newBuilder().putAllFeature(features))
        .build();
  }

  public static void main(String[] arguments) throws InterruptedException {
    if (arguments.length != 2) {
      System.err.println("usage: Rank HOST:PORT MODEL");
      System.exit(2);
    }
    ExampleListWithContext list =
        ExampleListWithContext.newBuilder()
            .setContext(
                example(
                    Map.of(
                        "top", ids("food"),
                        "sub", ids("bread"),
                        "context_numeric", numbers(31f)))) // age
            .addExamples(
                example(
                    Map.of(
                        "example_numeric", numbers(9.5f, 4f), // price, stars
                        "brand", ids("acme"),
                        "tags", ids("new", "", ""))))
            .addExamples(
                example(
                    Map.of(
                        "example_numeric", numbers(3f, 5f),
                        "brand", ids("bolt"),
                        "tags", ids("", "", ""))))
            .build();
    PredictRequest request =
        PredictRequest.newBuilder()
            .setModelSpec(ModelSpec.newBuilder().setName(arguments[1]).setSignatureName("rank"))
            .putInputs(
                "inputs",
                TensorProto.newBuilder()
                    .setDtype(DataType.DT_STRING)
                    .setTensorShape(
                        TensorShapeProto.newBuilder()
                            .addDim(TensorShapeProto.Dim.newBuilder().setSize(1)))
                    .addStringVal(list.toByteString())
                    .build())
            .build();

    ManagedChannel channel =
        ManagedChannelBuilder.forTarget(arguments[0]).usePlaintext().build();
    PredictResponse answer =
        PredictionServiceGrpc.newBlockingStub(channel)
            .withDeadlineAfter(5, TimeUnit.SECONDS)
            .predict(request);
    // A server that batches may pad the list: only the first `valid` places mean something.
    int valid = answer.getOutputsOrThrow("valid").getIntVal(0);
    for (int place = 0; place < valid; place++) {
      int item = answer.getOutputsOrThrow("order").getIntVal(place);
      float score = answer.getOutputsOrThrow("scores").getFloatVal(place);
      System.out.printf(Locale.ROOT, "%d. item %d, score %.6f%n", place + 1, item, score);
    }
    channel.shutdown().awaitTermination(5, TimeUnit.SECONDS);
  }
}
