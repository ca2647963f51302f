import java.io.File;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * produce NAMESRV TOPIC GROUP COUNT MILLIS: sends one each MILLIS, again when that failed, 20 failures in total;
 *   ends earlier where there is a file "stop" in its folder.
 * kinds NAMESRV TOPIC GROUP: sends a message with tag, keys and property, one that is compressed, and a batch.
 * request NAMESRV TOPIC GROUP COUNT: sends requests, one after the other, and prints their replies; again when that
 *   failed, 20 failures in total.
 * answer NAMESRV TOPIC GROUP: replies to each message with "re " and its body, until it is killed.
 * consume NAMESRV TOPIC GROUP [TAG|SQL92 EXPRESSION]: reads until it is killed.
 * pop NAMESRV TOPIC GROUP: likewise, by POP, where the broker says so for topic and group (5.x).
 * produce and consume take a namespace, as the property "namespace".
 * NAMESRV is empty where an address server has the list of name servers.
 */
public class Client {
  public static void main(String[] a) throws Exception {
    if (a[0].equals("produce")) {
      DefaultMQProducer p = new DefaultMQProducer(a[3]);
      p.setNamesrvAddr(a[1].isEmpty() ? null : a[1]);
      p.setVipChannelEnabled(false);
      p.setPollNameServerInterval(Integer.getInteger("pollMillis", 2000));
      p.setNamespace(System.getProperty("namespace", ""));
      p.start();
      System.out.println("started");
      int failures = 0;
      for (int i = 0; i < Integer.parseInt(a[4]) && failures < 20 && !new File("stop").exists(); i++) {
        try {
          byte[] body = ("m" + i).getBytes(StandardCharsets.UTF_8);
          MessageQueue queue = p.send(new Message(a[2], body), 3000).getMessageQueue();
          System.out.println("sent m" + i + " " + queue.getBrokerName() + " " + queue.getQueueId());
        } catch (Exception e) {
          System.out.println("failed m" + i + " " + e.toString().split("\n")[0]);
          failures++;
          i--;
        }
        Thread.sleep(Long.parseLong(a[5]));
      }
      p.shutdown();
      System.exit(0);
    }
    if (a[0].equals("kinds")) {
      DefaultMQProducer p = new DefaultMQProducer(a[3]);
      p.setNamesrvAddr(a[1].isEmpty() ? null : a[1]);
      p.setVipChannelEnabled(false);
      p.start();
      Message tagged = new Message(a[2], "paid", "4711 4712", "tagged".getBytes(StandardCharsets.UTF_8));
      tagged.putUserProperty("source", "java");
      p.send(tagged, 10000);
      p.send(new Message(a[2], "x".repeat(10000).getBytes(StandardCharsets.UTF_8)), 10000);
      List<Message> batch = new ArrayList<>();
      for (int i = 0; i < 3; i++) {
        batch.add(new Message(a[2], "in", "b" + i, ("b" + i).getBytes(StandardCharsets.UTF_8)));
      }
      p.send(batch, 10000);
      p.shutdown();
      System.exit(0);
    }
    if (a[0].equals("request")) {
      DefaultMQProducer p = new DefaultMQProducer(a[3]);
      p.setNamesrvAddr(a[1]);
      p.setVipChannelEnabled(false);
      p.start();
      int failures = 0;
      for (int i = 0; i < Integer.parseInt(a[4]) && failures < 20; i++) {
        try {
          Message reply = p.request(new Message(a[2], ("q" + i).getBytes(StandardCharsets.UTF_8)), 15000);
          System.out.println("reply " + new String(reply.getBody(), StandardCharsets.UTF_8));
        } catch (Exception e) {
          System.out.println("failed q" + i + " " + e.toString().split("\n")[0]);
          failures++;
          i--;
        }
      }
      p.shutdown();
      System.exit(0);
    }
    DefaultMQProducer replies = new DefaultMQProducer(a[3] + "-replies");
    boolean answers = a[0].equals("answer");
    if (answers) {
      replies.setNamesrvAddr(a[1]);
      replies.setVipChannelEnabled(false);
      replies.start();
    }
    DefaultMQPushConsumer c = new DefaultMQPushConsumer(a[3]);
    c.setNamesrvAddr(a[1].isEmpty() ? null : a[1]);
    c.setVipChannelEnabled(false);
    c.setPollNameServerInterval(Integer.getInteger("pollMillis", 2000));
    c.setNamespace(System.getProperty("namespace", ""));
    if (a[0].equals("pop")) {
      // 4.9 has neither.
      c.getClass().getMethod("setClientRebalance", boolean.class).invoke(c, false);
      c.getClass().getMethod("setPopInvisibleTime", long.class).invoke(c, 10000L);
    }
    boolean isSql = a.length > 5 && a[4].equals("SQL92");
    c.subscribe(a[2], isSql ? MessageSelector.bySql(a[5]) : MessageSelector.byTag(a.length > 5 ? a[5] : "*"));
    c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    c.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
      messages.forEach(m -> {
        byte[] body = m.getBody();
        String start = new String(body, 0, Math.min(body.length, 20), StandardCharsets.UTF_8);
        System.out.println("got " + start + " tags=" + m.getTags() + " keys=" + m.getKeys()
            + " source=" + m.getUserProperty("source") + " size=" + body.length);
        if (answers) {
          try {
            byte[] answer = ("re " + new String(body, StandardCharsets.UTF_8)).getBytes(StandardCharsets.UTF_8);
            replies.send(MessageUtil.createReplyMessage(m, answer), 3000);
          } catch (Exception e) {
            System.out.println("failed " + e.toString().split("\n")[0]);
          }
        }
      });
      return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
    });
    c.start();
    System.out.println("started");
    Thread.sleep(Long.MAX_VALUE);
  }
}
