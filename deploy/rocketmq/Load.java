import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/**
 * Loads a broker and measures itself. Argument: NAMESRV. Each line of its input is a command; for each it prints
 * "measured MESSAGES FAILED CPU_SECONDS SECONDS".
 *   send TOPIC SECONDS IN_FLIGHT BATCH: bodies of 100 bytes, asynchronously; a BATCH above 1 is one request.
 *   consume TOPIC COUNT GROUP: a push consumer from the first message to the COUNT-th.
 */
public class Load {
  private static final OperatingSystemMXBean PROCESS =
      (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

  public static void main(String[] a) throws Exception {
    DefaultMQProducer producer = new DefaultMQProducer("Load");
    producer.setNamesrvAddr(a[0]);
    producer.setVipChannelEnabled(false);
    producer.start();
    BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
    for (String line = input.readLine(); line != null; line = input.readLine()) {
      String[] command = line.split(" ");
      if (command[0].equals("send")) {
        send(producer, command[1], Double.parseDouble(command[2]), Integer.parseInt(command[3]),
            Integer.parseInt(command[4]));
      } else {
        consume(a[0], command[1], Long.parseLong(command[2]), command[3]);
      }
    }
    System.exit(0);
  }

  private static void send(DefaultMQProducer producer, String topic, double seconds, int inFlight, int batch)
      throws Exception {
    Semaphore free = new Semaphore(inFlight);
    AtomicLong sent = new AtomicLong();
    AtomicLong failed = new AtomicLong();
    SendCallback callback = new SendCallback() {
      @Override
      public void onSuccess(SendResult result) {
        sent.addAndGet(batch);
        free.release();
      }

      @Override
      public void onException(Throwable e) {
        failed.addAndGet(batch);
        free.release();
      }
    };
    byte[] body = new byte[100];
    long cpu = PROCESS.getProcessCpuTime();
    long began = System.nanoTime();
    while (System.nanoTime() - began < seconds * 1e9) {
      free.acquire();
      if (batch == 1) {
        producer.send(new Message(topic, body), callback);
      } else {
        List<Message> messages = new ArrayList<>(batch);
        for (int i = 0; i < batch; i++) {
          messages.add(new Message(topic, body));
        }
        producer.send(messages, callback);
      }
    }
    free.acquire(inFlight);
    report(sent.get(), failed.get(), cpu, began);
  }

  private static void consume(String namesrv, String topic, long count, String group) throws Exception {
    DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
    consumer.setNamesrvAddr(namesrv);
    consumer.setVipChannelEnabled(false);
    consumer.subscribe(topic, "*");
    consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    AtomicLong seen = new AtomicLong();
    long[] atFirst = new long[2];
    CountDownLatch done = new CountDownLatch(1);
    consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
      long number = seen.addAndGet(messages.size());
      if (number == messages.size()) {
        atFirst[0] = PROCESS.getProcessCpuTime();
        atFirst[1] = System.nanoTime();
      }
      if (number >= count && number - messages.size() < count) {
        report(count, 0, atFirst[0], atFirst[1]);
        done.countDown();
      }
      return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
    });
    consumer.start();
    done.await();
    consumer.shutdown();
  }

  private static void report(long messages, long failed, long cpu, long began) {
    double cpuSeconds = (PROCESS.getProcessCpuTime() - cpu) / 1e9;
    double seconds = (System.nanoTime() - began) / 1e9;
    System.out.println("measured " + messages + " " + failed + " " + cpuSeconds + " " + seconds);
  }
}
