// What Client.java does, with RocketMQ's client for Go:
//
//	produce NAMESRV TOPIC GROUP COUNT MILLIS: sends one each MILLIS, again when that failed, 20 failures in total;
//	  ends earlier where there is a file "stop" in its folder.
//	consume NAMESRV TOPIC GROUP: reads until it is killed.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

func main() {
	rlog.SetLogLevel("error")
	namesrv := primitive.NewPassthroughResolver(strings.Split(os.Args[2], ";"))
	if os.Args[1] == "produce" {
		produce(namesrv, os.Args[3], os.Args[4], number(os.Args[5]), number(os.Args[6]))
	} else {
		consume(namesrv, os.Args[3], os.Args[4])
	}
}

// Each queue once more, for this client goes round and does not avoid a broker that failed.
const retries = 8

func produce(namesrv primitive.NsResolver, topic, group string, count, millis int) {
	p, err := rocketmq.NewProducer(producer.WithNsResolver(namesrv), producer.WithGroupName(group),
		producer.WithRetry(retries))
	check(err)
	check(p.Start())
	fmt.Println("started")
	for i, failures := 0, 0; i < count && failures < 20 && !stopped(); {
		message := primitive.NewMessage(topic, []byte(fmt.Sprintf("m%d", i)))
		result, err := p.SendSync(context.Background(), message)
		if err != nil {
			fmt.Printf("failed m%d %v\n", i, err)
			failures++
		} else {
			fmt.Printf("sent m%d %s\n", i, result.MessageQueue.BrokerName)
			i++
		}
		time.Sleep(time.Duration(millis) * time.Millisecond)
	}
	check(p.Shutdown())
}

func consume(namesrv primitive.NsResolver, topic, group string) {
	c, err := rocketmq.NewPushConsumer(consumer.WithNsResolver(namesrv), consumer.WithGroupName(group),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	check(err)
	check(c.Subscribe(topic, consumer.MessageSelector{},
		func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			for _, message := range messages {
				fmt.Printf("got %s\n", message.Body)
			}
			return consumer.ConsumeSuccess, nil
		}))
	check(c.Start())
	fmt.Println("started")
	select {}
}

func stopped() bool {
	_, err := os.Stat("stop")
	return err == nil
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
