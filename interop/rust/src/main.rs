//! Real Rust clients: they send, pull and consume, and print a JSON line for each thing that they saw.
//!
//!     cargo run 127.0.0.1:9876

#![allow(deprecated)] // the consumer that pulls by hand; the other one asks with 4.9.3's requests no more

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rocketmq_client_rust::{
    ClientResult, ClientRuntime, ClientRuntimeConfig, ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus, DefaultMQProducer, DefaultMQPullConsumer, DefaultMQPushConsumer,
    MQPushConsumer, MessageListenerConcurrently,
};
use rocketmq_model::common::consumer::consume_from_where::ConsumeFromWhere;
use rocketmq_model::common::message::message_ext::MessageExt;
use rocketmq_model::common::message::message_single::Message;
use rocketmq_observability::TelemetryBootstrapConfig;
use rocketmq_runtime::{RuntimeConfig, RuntimeOwner};
use serde_json::json;

const TOPIC: &str = "rust";
const COUNT: usize = 8;
const LONGEST_WAIT: Duration = Duration::from_secs(60);

fn show(who: &str, message: &MessageExt) {
    let property = |name: &str| {
        message.properties().iter().find(|(key, _)| key.as_str() == name).map(|(_, value)| value.to_string())
    };
    let line = json!({
        "kind": "got",
        "who": who,
        "topic": message.topic().to_string(),
        "body": message.body().map(|body| String::from_utf8_lossy(&body).into_owned()),
        "tags": property("TAGS"),
        "keys": property("KEYS"),
        "psly": property("psly"),
        "queue_id": message.queue_id(),
        "queue_offset": message.queue_offset(),
        "reconsume_times": message.reconsume_times(),
    });
    println!("{line}");
}

/// Says what it gets; fails the message with the key "fails" the first time.
struct Listener {
    who: &'static str,
    calls: Arc<AtomicUsize>,
}

impl MessageListenerConcurrently for Listener {
    fn consume_message(
        &self,
        messages: &[&MessageExt],
        _context: &ConsumeConcurrentlyContext,
    ) -> ClientResult<ConsumeConcurrentlyStatus> {
        let mut again = false;
        for message in messages {
            show(self.who, message);
            let keys = message.properties().iter().find(|(key, _)| key.as_str() == "KEYS");
            again |= keys.is_some_and(|(_, value)| value.as_str() == "fails") && message.reconsume_times() == 0;
        }
        self.calls.fetch_add(messages.len(), Ordering::SeqCst);
        Ok(if again {
            ConsumeConcurrentlyStatus::ReconsumeLater
        } else {
            ConsumeConcurrentlyStatus::ConsumeSuccess
        })
    }
}

/// Consumes in a group of its own until so many messages have come.
async fn consume(
    runtime: &Arc<ClientRuntime>,
    namesrv: &str,
    who: &'static str,
    expression: &str,
    count: usize,
) -> ClientResult<()> {
    let mut consumer = DefaultMQPushConsumer::builder(runtime.clone())
        .consumer_group(format!("rust-{who}"))
        .name_server_addr(namesrv.to_string())
        .consume_from_where(ConsumeFromWhere::ConsumeFromFirstOffset)
        .consume_message_batch_max_size(1)
        .build();
    let calls = Arc::new(AtomicUsize::new(0));
    consumer.subscribe(TOPIC, expression).await?;
    consumer.register_message_listener_concurrently(Listener { who, calls: calls.clone() });
    consumer.start().await?;
    let begun = Instant::now();
    while calls.load(Ordering::SeqCst) < count {
        if begun.elapsed() > LONGEST_WAIT {
            println!("{}", json!({"kind": "late", "who": who}));
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Box::pin(consumer.shutdown()).await;
    Ok(())
}

async fn pull(runtime: &Arc<ClientRuntime>, namesrv: &str) -> ClientResult<()> {
    let consumer = DefaultMQPullConsumer::builder(runtime.clone())
        .consumer_group("rust-pull")
        .name_server_addr(namesrv.to_string())
        .build()?;
    consumer.start().await?;
    for queue in consumer.fetch_subscribe_message_queues(TOPIC).await? {
        let result = consumer.pull(&queue, "*", 0, 32).await?;
        for message in result.msg_found_list().unwrap_or_default() {
            show("pull", message);
        }
    }
    consumer.shutdown().await
}

async fn run(runtime: &Arc<ClientRuntime>, namesrv: &str) -> Result<(), Box<dyn Error>> {
    let mut producer = DefaultMQProducer::builder(runtime.clone())
        .producer_group("rust-p")
        .name_server_addr(namesrv.to_string())
        .build();
    producer.start().await?;
    for n in 0..=COUNT {
        let key = if n == COUNT { "fails".to_string() } else { format!("k{n}") };
        let message = Message::builder()
            .topic(TOPIC)
            .tags(if n % 2 == 0 { "created" } else { "paid" })
            .keys(vec![key])
            .raw_property("psly", "psly")?
            .body_slice(format!("body {n}").as_bytes())
            .build()?;
        let sent = producer.send_with_timeout(message, 10_000).await?;
        println!("{}", json!({"kind": "sent", "status": sent.map(|sent| format!("{:?}", sent.send_status))}));
    }
    pull(runtime, namesrv).await?;
    consume(runtime, namesrv, "push", "*", COUNT + 2).await?;
    consume(runtime, namesrv, "tags", "paid || refunded", COUNT / 2).await?;
    Box::pin(producer.shutdown()).await;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let namesrv = std::env::args().nth(1).ok_or("which name server?")?;
    let owner = RuntimeOwner::plan(RuntimeConfig::default())?.build()?;
    let telemetry = rocketmq_observability::install_global(&TelemetryBootstrapConfig::default())?;
    let runtime = ClientRuntime::try_new(
        owner.root_context().component("client"),
        ClientRuntimeConfig::default(),
        telemetry.handle(),
    )?;
    run(&runtime, &namesrv).await?;
    println!("{}", json!({"kind": "end"}));
    std::process::exit(0); // what is left of the runtimes is not what is looked at
}
