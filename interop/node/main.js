'use strict';

// The client of npm's ali-ons: sends and consumes, and prints a JSON line for each thing that it saw.
//
//   node main.js NAMESRV
//
// The topic node with four queues must be there: this client takes no defaults of a broker.

const httpclient = require('urllib');
const { Consumer, Message, Producer } = require('ali-ons');

const TOPIC = 'node';
const COUNT = 8;
const LONGEST_WAIT = 60 * 1000;
const COMMON = {
  httpclient,
  nameSrv: process.argv[2],
  clientIP: '127.0.0.1',
  // Where it looks every 30 and every 10 seconds: the queue of retries is made by its heartbeat.
  pollNameServerInteval: 500,
  rebalanceInterval: 500,
  persistConsumerOffsetInterval: 500,
};

function say(kind, fields = {}) {
  console.log(JSON.stringify({ kind, ...fields }));
}

function show(who, message) {
  say('got', {
    who,
    topic: message.topic,
    body: message.body.length < 100 ? message.body.toString() : message.body.length,
    tags: message.tags,
    keys: message.keys,
    queue_id: message.queueId,
    queue_offset: Number(message.queueOffset),
    reconsume_times: message.reconsumeTimes,
    psly: message.properties.psly,
  });
}

async function until(holds) {
  const deadline = Date.now() + LONGEST_WAIT;
  while (!holds()) {
    if (Date.now() > deadline) {
      say('late');
      return;
    }
    await new Promise(resolve => setTimeout(resolve, 20));
  }
}

async function send(producer, tags, key, body) {
  const message = new Message(TOPIC, tags, body);
  message.keys = [ key ];
  message.properties.psly = 'psly';
  const sent = await producer.send(message);
  say('sent', {
    status: sent.sendStatus,
    msg_id: sent.msgId,
    queue_id: sent.messageQueue.queueId,
    queue_offset: Number(sent.queueOffset),
  });
}

/** A consumer of a group of its own, until it was called so often; it fails what `fails` says. */
async function consume(who, expression, count, fails = () => false) {
  const consumer = new Consumer({
    ...COMMON,
    consumerGroup: `node-${who}`,
    instanceName: `node-${who}`,
    consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET',
  });
  consumer.on('error', error => console.error(error));
  let calls = 0;
  consumer.subscribe(TOPIC, expression, async message => {
    show(who, message);
    calls++;
    return fails(message) ? Consumer.ACTION_RETRY : undefined;
  });
  await until(() => calls >= count);
  await consumer.close();
}

async function main() {
  const producer = new Producer({ ...COMMON, producerGroup: 'node-p', instanceName: 'node-p' });
  await producer.ready();
  for (let n = 0; n < COUNT; n++) {
    await send(producer, n % 2 ? 'paid' : 'created', `k${n}`, `body ${n}`);
  }
  await send(producer, 'big', 'big', Buffer.alloc(50000, 'big ')); // the client deflates it
  await consume('push', '*', COUNT + 1);
  await consume('tags', 'paid || refunded', COUNT / 2);
  await consume('sql', { expressionType: 'SQL92', subString: "KEYS IN ('k1', 'k2')" }, 2);
  await consume('retry', 'big', 2, message => message.reconsumeTimes === 0);
  await producer.close();
  say('end');
}

main().then(() => process.exit(0), error => {
  console.error(error);
  process.exit(1);
});
