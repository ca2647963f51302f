import com.google.gson.Gson;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.protobuf.Any;
import com.google.protobuf.DescriptorProtos.FileDescriptorProto;
import com.google.protobuf.DescriptorProtos.FileDescriptorSet;
import com.google.protobuf.Descriptors.FileDescriptor;
import com.google.protobuf.Descriptors.ServiceDescriptor;
import com.google.protobuf.DynamicMessage;
import com.google.protobuf.util.JsonFormat;
import com.google.rpc.ErrorInfo;
import io.grpc.CallOptions;
import io.grpc.ClientCall;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import io.grpc.TlsChannelCredentials;
import io.grpc.protobuf.ProtoUtils;
import io.grpc.protobuf.StatusProto;
import java.io.BufferedReader;
import java.io.File;
import java.io.FileInputStream;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/**
 * A client of grpc-java that does what each line of its input requests (tests/peers/peer_process.py).
 *
 * <p>{@code java Peer ADDRESS DESCRIPTOR_SET [CA_FILE]}
 */
public final class Peer {
  private final Map<String, ServiceDescriptor> services = new HashMap<>();
  private final ManagedChannel channel;
  private Exchange stream;

  private Peer(ManagedChannel channel, FileDescriptorSet set) throws Exception {
    this.channel = channel;
    Map<String, FileDescriptor> files = new HashMap<>();
    for (FileDescriptorProto each : set.getFileList()) { // each file is behind those that it needs
      FileDescriptor[] needed = each.getDependencyList().stream().map(files::get).toArray(FileDescriptor[]::new);
      FileDescriptor file = FileDescriptor.buildFrom(each, needed);
      files.put(each.getName(), file);
      file.getServices().forEach(service -> services.put(service.getName(), service));
    }
  }

  public static void main(String[] args) throws Exception {
    var credentials = args.length > 2
        ? TlsChannelCredentials.newBuilder().trustManager(new File(args[2])).build()
        : InsecureChannelCredentials.create();
    try (FileInputStream file = new FileInputStream(args[1])) {
      Peer peer = new Peer(Grpc.newChannelBuilder(args[0], credentials).build(), FileDescriptorSet.parseFrom(file));
      BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
      for (String line = lines.readLine(); line != null; line = lines.readLine()) {
        System.out.println(new Gson().toJson(peer.perform(JsonParser.parseString(line).getAsJsonObject())));
      }
      peer.channel.shutdownNow().awaitTermination(5, TimeUnit.SECONDS);
    }
  }

  private JsonObject perform(JsonObject order) throws Exception {
    switch (order.get("do").getAsString()) {
      case "call":
        return call(order, requests(order)).only();
      case "calls": {
        List<Exchange> all = new ArrayList<>();
        for (JsonElement each : requests(order)) {
          all.add(call(order, List.of(each)));
        }
        List<Integer> codes = new ArrayList<>();
        for (Exchange each : all) {
          codes.add(each.only().get("code").getAsInt());
        }
        JsonObject outcome = ended(Status.OK, new Metadata());
        outcome.add("codes", new Gson().toJsonTree(codes));
        return outcome;
      }
      case "open":
        stream = new Exchange(order);
        for (JsonElement each : requests(order)) {
          stream.send(each);
        }
        if (!stream.method.isClientStreaming()) {
          stream.call.halfClose();
        }
        break;
      case "send":
        stream.send(requests(order).get(0));
        break;
      case "receive":
        return stream.received.take();
      case "half_close":
        stream.call.halfClose();
        break;
      case "cancel":
        stream.call.cancel("as requested", null);
        break;
      default:
        throw new IllegalArgumentException(order.toString());
    }
    return ended(Status.OK, new Metadata());
  }

  /** Unary, or requests that stream to one response. */
  private Exchange call(JsonObject order, List<JsonElement> requests) throws Exception {
    Exchange exchange = new Exchange(order);
    for (JsonElement each : requests) {
      exchange.send(each);
    }
    exchange.call.halfClose();
    return exchange;
  }

  private static List<JsonElement> requests(JsonObject order) {
    List<JsonElement> found = new ArrayList<>();
    order.get("requests").getAsJsonArray().forEach(found::add);
    return found;
  }

  private static JsonObject ended(Status status, Metadata trailers) {
    JsonObject outcome = new JsonObject();
    outcome.addProperty("code", status.getCode().value());
    outcome.addProperty("message", status.getDescription());
    List<String> reasons = new ArrayList<>();
    com.google.rpc.Status rich = StatusProto.fromStatusAndTrailers(status, trailers);
    try {
      for (Any each : rich.getDetailsList()) {
        if (each.is(ErrorInfo.class)) {
          reasons.add(each.unpack(ErrorInfo.class).getReason());
        }
      }
    } catch (com.google.protobuf.InvalidProtocolBufferException error) {
      throw new IllegalArgumentException(error);
    }
    outcome.add("reasons", new Gson().toJsonTree(reasons));
    return outcome;
  }

  /** One call: what it received, in order, and then its end. */
  private final class Exchange extends ClientCall.Listener<DynamicMessage> {
    final BlockingQueue<JsonObject> received = new LinkedBlockingQueue<>();
    final com.google.protobuf.Descriptors.MethodDescriptor method;
    final ClientCall<DynamicMessage, DynamicMessage> call;

    Exchange(JsonObject order) {
      String name = order.get("method").getAsString();
      String[] parts = name.split("/");
      method = services.get(parts[0]).findMethodByName(parts[1]);
      MethodDescriptor<DynamicMessage, DynamicMessage> described =
          MethodDescriptor.<DynamicMessage, DynamicMessage>newBuilder()
              .setType(MethodDescriptor.MethodType.UNKNOWN)
              .setFullMethodName("pointsman.v1." + name)
              .setRequestMarshaller(ProtoUtils.marshaller(DynamicMessage.getDefaultInstance(method.getInputType())))
              .setResponseMarshaller(ProtoUtils.marshaller(DynamicMessage.getDefaultInstance(method.getOutputType())))
              .build();
      CallOptions options = CallOptions.DEFAULT.withWaitForReady();
      long millis = order.has("millis") ? order.get("millis").getAsLong() : 0;
      call = channel.newCall(
          described, millis == 0 ? options : options.withDeadlineAfter(millis, TimeUnit.MILLISECONDS));
      call.start(this, new Metadata());
      call.request(1);
    }

    void send(JsonElement content) throws Exception {
      DynamicMessage.Builder builder = DynamicMessage.newBuilder(method.getInputType());
      JsonFormat.parser().merge(content.toString(), builder);
      call.sendMessage(builder.build());
    }

    @Override
    public void onMessage(DynamicMessage message) {
      JsonObject outcome = ended(Status.OK, new Metadata());
      try {
        outcome.add("response", JsonParser.parseString(JsonFormat.printer().print(message)));
      } catch (com.google.protobuf.InvalidProtocolBufferException error) {
        throw new IllegalArgumentException(error);
      }
      received.add(outcome);
      call.request(1);
    }

    @Override
    public void onClose(Status status, Metadata trailers) {
      received.add(ended(status, trailers));
    }

    /** Wait for the end, and return the response or the failure. */
    JsonObject only() throws InterruptedException {
      JsonObject first = received.take();
      if (!first.has("response")) {
        return first;
      }
      JsonObject last = received.take();
      return last.get("code").getAsInt() == 0 ? first : last;
    }
  }
}
