// A client of @grpc/grpc-js that does what each line of its input requests (tests/peers/peer_process.py).
//
//   node main.js ADDRESS PROTO_FOLDER [CA_FILE]
'use strict'

const fs = require('node:fs')
const readline = require('node:readline')
const grpc = require('@grpc/grpc-js')
const loader = require('@grpc/proto-loader')
const protobuf = require('protobufjs')

const [address, protos, ca] = process.argv.slice(2)
const FILES = ['pointsman/v1/route_service.proto', 'pointsman/v1/registration_service.proto']
const definition = loader.loadSync(FILES, { includeDirs: [protos], longs: String, enums: String, bytes: String })
const services = grpc.loadPackageDefinition(definition).pointsman.v1
const credentials = ca ? grpc.credentials.createSsl(fs.readFileSync(ca)) : grpc.credentials.createInsecure()
const options = { 'grpc.initial_reconnect_backoff_ms': 50, 'grpc.max_reconnect_backoff_ms': 1000 }
const clients = new Map()

// As in google/rpc/status.proto and error_details.proto.
const { root } = protobuf.parse(`
  syntax = "proto3";
  message Any { string type_url = 1; bytes value = 2; }
  message Status { int32 code = 1; string message = 2; repeated Any details = 3; }
  message ErrorInfo { string reason = 1; string domain = 2; map<string, string> metadata = 3; }
`, { keepCase: true })

let stream

function client (service) {
  if (!clients.has(service)) clients.set(service, new services[service](address, credentials, options))
  return clients.get(service)
}

function method ({ method }) {
  const [service, name] = method.split('/')
  const found = services[service].service[name]
  return { service: client(service), ...found }
}

function callOptions ({ millis }) {
  const metadata = new grpc.Metadata({ waitForReady: true })
  return [metadata, millis ? { deadline: Date.now() + millis } : {}]
}

function ended (error) {
  if (!error || error.code === grpc.status.OK) return { code: 0 }
  const reasons = []
  for (const encoded of error.metadata ? error.metadata.get('grpc-status-details-bin') : []) {
    for (const each of root.lookupType('Status').decode(encoded).details) {
      if (each.type_url.endsWith('google.rpc.ErrorInfo')) {
        reasons.push(root.lookupType('ErrorInfo').decode(each.value).reason)
      }
    }
  }
  return { code: error.code, message: error.details, reasons }
}

// Unary, or requests that stream to one response.
function call (order) {
  const { service, path, requestStream, requestSerialize, responseDeserialize } = method(order)
  return new Promise((resolve) => {
    const done = (error, response) => resolve(error ? ended(error) : { code: 0, response })
    if (!requestStream) {
      service.makeUnaryRequest(path, requestSerialize, responseDeserialize, order.requests[0], ...callOptions(order), done)
      return
    }
    const upload = service.makeClientStreamRequest(
      path, requestSerialize, responseDeserialize, ...callOptions(order), done)
    for (const each of order.requests) upload.write(each)
    upload.end()
  })
}

// The open stream, its responses in order and its end.
class Stream {
  constructor (order) {
    const { service, path, requestStream, requestSerialize, responseDeserialize } = method(order)
    const start = [path, requestSerialize, responseDeserialize]
    this.received = []
    this.waiting = []
    if (requestStream) {
      this.call = service.makeBidiStreamRequest(...start, ...callOptions(order))
      for (const each of order.requests) this.call.write(each)
    } else {
      this.call = service.makeServerStreamRequest(...start, order.requests[0], ...callOptions(order))
    }
    this.call.on('data', (response) => this.add({ code: 0, response }))
    this.call.on('error', () => {})  // the status has it
    this.call.on('status', (status) => this.add(ended(status)))
  }

  add (outcome) {
    const next = this.waiting.shift()
    if (next) next(outcome)
    else this.received.push(outcome)
  }

  next () {
    if (this.received.length) return this.received.shift()
    return new Promise((resolve) => this.waiting.push(resolve))
  }
}

async function perform (order) {
  switch (order.do) {
    case 'call': return call(order)
    case 'calls': {
      const all = await Promise.all(order.requests.map((each) => call({ ...order, requests: [each] })))
      return { code: 0, codes: all.map((each) => each.code) }
    }
    case 'open': stream = new Stream(order); return { code: 0 }
    case 'send': stream.call.write(order.requests[0]); return { code: 0 }
    case 'receive': return stream.next()
    case 'half_close': stream.call.end(); return { code: 0 }
    case 'cancel': stream.call.cancel(); return { code: 0 }
  }
  throw new Error(`unknown: ${order.do}`)
}

async function main () {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    console.log(JSON.stringify(await perform(JSON.parse(line))))
  }
  process.exit(0)
}

main()
