// Real Go clients: scenarios against a name server, and a JSON line for each thing that they saw.
//
//	go run . 127.0.0.1:9876 send batch push
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

var namesrv string
var printing sync.Mutex

func say(kind string, fields map[string]any) {
	printing.Lock()
	defer printing.Unlock()
	fields["kind"] = kind
	text, err := json.Marshal(fields)
	must(err)
	fmt.Println(string(text))
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func servers() primitive.NamesrvAddr {
	return primitive.NamesrvAddr{namesrv}
}

func started(group string) rocketmq.Producer {
	p, err := rocketmq.NewProducer(producer.WithNameServer(servers()), producer.WithGroupName(group),
		producer.WithInstanceName(group), producer.WithRetry(0), producer.WithSendMsgTimeout(10*time.Second))
	must(err)
	must(p.Start())
	return p
}

func sent(result *primitive.SendResult, err error) {
	must(err)
	say("sent", map[string]any{"status": int(result.Status), "queue_id": result.MessageQueue.QueueId,
		"queue_offset": result.QueueOffset, "msg_id": result.MsgID, "offset_msg_id": result.OffsetMsgID})
}

func message(topic, tag, key, body string) *primitive.Message {
	m := primitive.NewMessage(topic, []byte(body))
	m.WithTag(tag)
	m.WithKeys([]string{key})
	m.WithProperty("psly", "psly")
	return m
}

func fill(topic string, count int) {
	p := started(topic + "-p")
	defer p.Shutdown()
	for i := 0; i < count; i++ {
		_, err := p.SendSync(context.Background(), message(topic, []string{"created", "paid"}[i/4%2],
			fmt.Sprintf("order-%d", i), fmt.Sprintf("order %d", i)))
		must(err)
	}
}

func send() {
	p := started("go-send-p")
	defer p.Shutdown()
	for i := 0; i < 3; i++ {
		sent(p.SendSync(context.Background(), message("go-sent", "t", "k", fmt.Sprintf("sync %d", i))))
	}
	var done sync.WaitGroup
	done.Add(1)
	must(p.SendAsync(context.Background(), func(_ context.Context, result *primitive.SendResult, err error) {
		sent(result, err)
		done.Done()
	}, message("go-sent", "t", "k", "async")))
	done.Wait()
	must(p.SendOneWay(context.Background(), message("go-sent", "t", "k", "oneway")))
	time.Sleep(100 * time.Millisecond)
}

func batch() {
	p := started("go-batch-p")
	defer p.Shutdown()
	var all []*primitive.Message
	for i := 0; i < 5; i++ {
		all = append(all, message("go-batched", "b", fmt.Sprint(i), fmt.Sprintf("batch %d", i)))
	}
	sent(p.SendSync(context.Background(), all...))
}

func big() {
	p := started("go-big-p")
	defer p.Shutdown()
	sent(p.SendSync(context.Background(), message("go-big", "t", "k", strings.Repeat("abc", 70000))))
}

func consume(group, topic string, count int, selector consumer.MessageSelector, orderly bool,
	decide func(*primitive.MessageExt) consumer.ConsumeResult) {
	options := []consumer.Option{consumer.WithNameServer(servers()), consumer.WithGroupName(group),
		consumer.WithInstance(group), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumerOrder(orderly), consumer.WithMaxReconsumeTimes(1)}
	c, err := rocketmq.NewPushConsumer(options...)
	must(err)
	enough := make(chan bool, 10000)
	must(c.Subscribe(topic, selector, func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		result := consumer.ConsumeSuccess
		if concurrent, ok := primitive.GetConcurrentlyCtx(ctx); ok {
			concurrent.DelayLevelWhenNextConsume = 1
		}
		for _, m := range messages {
			body := string(m.Body)
			if len(body) > 200 {
				body = fmt.Sprint(len(body))
			}
			say("got", map[string]any{"group": group, "topic": m.Topic, "queue_id": m.Queue.QueueId,
				"queue_offset": m.QueueOffset, "body": body, "tags": m.GetTags(), "keys": m.GetKeys(),
				"reconsume_times": m.ReconsumeTimes, "psly": m.GetProperty("psly")})
			if r := decide(m); r != consumer.ConsumeSuccess {
				result = r
			}
			enough <- true
		}
		return result, nil
	}))
	must(c.Start())
	deadline := time.After(20 * time.Second)
	for i := 0; i < count; i++ {
		select {
		case <-enough:
		case <-deadline:
			say("late", map[string]any{"group": group, "count": i})
			i = count
		}
	}
	time.Sleep(300 * time.Millisecond)
	must(c.Shutdown())
}

func accept(*primitive.MessageExt) consumer.ConsumeResult { return consumer.ConsumeSuccess }

func push() {
	fill("go-pushed", 12)
	consume("go-push-c", "go-pushed", 12, consumer.MessageSelector{}, false, accept)
}

func tags() {
	fill("go-tagged", 16)
	consume("go-tags-c", "go-tagged", 8,
		consumer.MessageSelector{Type: consumer.TAG, Expression: "paid || refunded"}, false, accept)
}

func orderly() {
	fill("go-ordered", 12)
	consume("go-orderly-c", "go-ordered", 12, consumer.MessageSelector{}, true, accept)
}

func delayed() {
	p := started("go-delay-p")
	defer p.Shutdown()
	m := message("go-delayed", "t", "k", "delayed")
	m.WithDelayTimeLevel(1)
	sent(p.SendSync(context.Background(), m))
	consume("go-delay-c", "go-delayed", 1, consumer.MessageSelector{}, false, accept)
}

type listener struct{}

func (listener) ExecuteLocalTransaction(m *primitive.Message) primitive.LocalTransactionState {
	switch m.GetKeys() {
	case "commit":
		return primitive.CommitMessageState
	case "rollback":
		return primitive.RollbackMessageState
	}
	return primitive.UnknowState
}

func (listener) CheckLocalTransaction(m *primitive.MessageExt) primitive.LocalTransactionState {
	say("check", map[string]any{"keys": m.GetKeys()})
	return primitive.CommitMessageState
}

func transactions() {
	p, err := rocketmq.NewTransactionProducer(listener{}, producer.WithNameServer(servers()),
		producer.WithGroupName("go-tx-p"), producer.WithInstanceName("go-tx-p"))
	must(err)
	must(p.Start())
	defer p.Shutdown()
	for _, key := range []string{"commit", "rollback", "unknown"} {
		result, err := p.SendMessageInTransaction(context.Background(), message("go-tx", "t", key, key))
		must(err)
		say("sent", map[string]any{"status": int(result.Status)})
	}
	consume("go-tx-c", "go-tx", 2, consumer.MessageSelector{}, false, accept)
}

func main() {
	rlog.SetLogLevel("error")
	namesrv = os.Args[1]
	scenarios := map[string]func(){"send": send, "batch": batch, "big": big, "push": push, "tags": tags,
		"orderly": orderly, "delayed": delayed, "transactions": transactions}
	for _, name := range os.Args[2:] {
		say("scenario", map[string]any{"name": name})
		scenarios[name]()
	}
	say("end", map[string]any{})
}
