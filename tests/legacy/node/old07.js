// The npm package `kafka` 0.2.3 as the tests drive it: node old07.js WHAT PORT TOPIC [VALUE...]
var kafka = require('kafka');
var words = process.argv.slice(2), what = words[0], port = Number(words[1]), topic = words[2];
var where = { host: '127.0.0.1', port: port, pollInterval: 50 };

if (what === 'produce') {
  var producer = new kafka.Producer(where);
  producer.connect().on('connect', function () {
    producer.send(words.slice(3), topic);
    producer.close();
  });
} else if (what === 'consume') {
  var consumer = new kafka.Consumer(where), left = Number(words[3]);
  consumer.on('message', function (name, message, offset) {
    console.log(name + '\t' + offset + '\t' + message);
    left -= 1;
    if (left === 0) process.exit(0);
  });
  consumer.connect(function () { consumer.subscribeTopic(topic); });
} else if (what === 'offsets') {
  var client = new kafka.Client(where);
  client.on('lastoffset', function (name, offset) {
    console.log(name + '\t' + offset);
    process.exit(0);
  });
  client.connect(function () { client.fetchOffsets(topic); });
}
