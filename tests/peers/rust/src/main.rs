//! A client of tonic that does what each line of its input requests (tests/peers/peer_process.py).
//!
//!     peer ADDRESS PROTO_FOLDER [CA_FILE]

use std::time::Duration;

use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, MethodDescriptor};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Request, Status};
use tonic_types::StatusExt;

type Problem = Box<dyn std::error::Error>;

#[derive(Deserialize)]
struct Order {
    r#do: String,
    #[serde(default)]
    method: String,
    #[serde(default)]
    requests: Vec<Value>,
    #[serde(default)]
    millis: u64,
}

#[derive(Default, Serialize)]
struct Outcome {
    code: i32,
    message: String,
    reasons: Vec<String>,
    response: Option<DynamicMessage>,
    codes: Vec<i32>,
}

impl From<Status> for Outcome {
    fn from(status: Status) -> Self {
        let info = status.get_error_details().error_info().map(|info| info.reason.clone());
        Outcome {
            code: status.code() as i32,
            message: status.message().to_owned(),
            reasons: info.into_iter().collect(),
            ..Default::default()
        }
    }
}

impl From<DynamicMessage> for Outcome {
    fn from(response: DynamicMessage) -> Self {
        Outcome { response: Some(response), ..Default::default() }
    }
}

/// Messages of one response type; requests know their own.
#[derive(Clone)]
struct Dynamic(MessageDescriptor);

impl Codec for Dynamic {
    type Encode = DynamicMessage;
    type Decode = DynamicMessage;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        self.clone()
    }

    fn decoder(&mut self) -> Self {
        self.clone()
    }
}

impl Encoder for Dynamic {
    type Item = DynamicMessage;
    type Error = Status;

    fn encode(&mut self, item: DynamicMessage, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        item.encode(buffer).map_err(|error| Status::internal(error.to_string()))
    }
}

impl Decoder for Dynamic {
    type Item = DynamicMessage;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<DynamicMessage>, Status> {
        let decoded = DynamicMessage::decode(self.0.clone(), buffer);
        decoded.map(Some).map_err(|error| Status::internal(error.to_string()))
    }
}

/// The open stream: a task has the call, and passes on requests and outcomes.
struct Stream {
    requests: Option<mpsc::Sender<DynamicMessage>>,
    outcomes: mpsc::Receiver<Outcome>,
    task: JoinHandle<()>,
}

#[derive(Clone)]
struct Peer {
    channel: Channel,
    pool: DescriptorPool,
}

impl Peer {
    fn method(&self, name: &str) -> Result<MethodDescriptor, Problem> {
        let (service, method) = name.split_once('/').ok_or("a method is Service/Method")?;
        let service = self.pool.get_service_by_name(&format!("pointsman.v1.{service}")).ok_or("unknown service")?;
        let found = service.methods().find(|each| each.name() == method);
        Ok(found.ok_or("unknown method")?)
    }

    fn request(&self, method: &MethodDescriptor, content: Value) -> Result<DynamicMessage, Problem> {
        Ok(DynamicMessage::deserialize(method.input(), content)?)
    }

    async fn ready(&self) -> Result<Grpc<Channel>, Status> {
        let mut client = Grpc::new(self.channel.clone()).max_decoding_message_size(1 << 26);
        client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        Ok(client)
    }

    /// Unary, or requests that stream to one response.
    async fn call(&self, order: &Order) -> Result<Outcome, Problem> {
        let method = self.method(&order.method)?;
        let mut requests = Vec::new();
        for each in &order.requests {
            requests.push(self.request(&method, each.clone())?);
        }
        let done = async {
            let (mut client, codec, path) = (self.ready().await?, Dynamic(method.output()), path(&order.method));
            if method.is_client_streaming() {
                client.client_streaming(Request::new(tokio_stream::iter(requests)), path, codec).await
            } else {
                client.unary(limited(requests.remove(0), order.millis), path, codec).await
            }
        };
        Ok(done.await.map_or_else(Outcome::from, |response| response.into_inner().into()))
    }

    async fn calls(&self, order: &Order) -> Result<Outcome, Problem> {
        let mut all = JoinSet::new();
        for each in &order.requests {
            let me = self.clone();
            let one = Order { r#do: String::new(), method: order.method.clone(), requests: vec![each.clone()], millis: 0 };
            all.spawn(async move { me.call(&one).await.map_or(-1, |outcome| outcome.code) });
        }
        Ok(Outcome { codes: all.join_all().await, ..Default::default() })
    }

    fn open(&self, order: Order) -> Result<Stream, Problem> {
        let method = self.method(&order.method)?;
        let (sender, waiting) = mpsc::channel(1_024);
        let (reporter, outcomes) = mpsc::channel(1_024);
        for each in order.requests {
            sender.try_send(self.request(&method, each)?)?;
        }
        let requests = method.is_client_streaming().then_some(sender); // else dropped: the request is complete
        let me = self.clone();
        let task = tokio::spawn(async move {
            let opened = async {
                let request = limited(ReceiverStream::new(waiting), order.millis);
                me.ready().await?.streaming(request, path(&order.method), Dynamic(method.output())).await
            };
            let last = match opened.await {
                Err(status) => status,
                Ok(response) => {
                    let mut responses = response.into_inner();
                    loop {
                        match responses.message().await {
                            Ok(Some(message)) => _ = reporter.send(message.into()).await,
                            Ok(None) => break Status::new(Code::Ok, ""),
                            Err(status) => break status,
                        }
                    }
                }
            };
            _ = reporter.send(last.into()).await;
        });
        Ok(Stream { requests, outcomes, task })
    }
}

fn path(method: &str) -> PathAndQuery {
    PathAndQuery::try_from(format!("/pointsman.v1.{method}")).expect("a method is a path")
}

fn limited<T>(message: T, millis: u64) -> Request<T> {
    let mut request = Request::new(message);
    if millis > 0 {
        request.set_timeout(Duration::from_millis(millis));
    }
    request
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Problem> {
    let arguments: Vec<String> = std::env::args().collect();
    let files = ["pointsman/v1/route_service.proto", "pointsman/v1/registration_service.proto"];
    let pool = DescriptorPool::from_file_descriptor_set(protox::compile(files, [&arguments[2]])?)?;
    let scheme = if arguments.len() > 3 { "https" } else { "http" };
    let mut endpoint = Endpoint::from_shared(format!("{scheme}://{}", arguments[1]))?;
    if let Some(file) = arguments.get(3) {
        let authority = Certificate::from_pem(std::fs::read(file)?);
        endpoint = endpoint.tls_config(ClientTlsConfig::new().ca_certificate(authority))?;
    }
    let peer = Peer { channel: endpoint.connect_lazy(), pool };
    let mut stream: Option<Stream> = None;
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let order: Order = serde_json::from_str(&line)?;
        let outcome = match (order.r#do.as_str(), &mut stream) {
            ("call", _) => peer.call(&order).await?,
            ("calls", _) => peer.calls(&order).await?,
            ("open", _) => {
                stream = Some(peer.open(order)?);
                Outcome::default()
            }
            ("send", Some(Stream { requests: Some(sender), .. })) => {
                let method = peer.method(&order.method)?;
                sender.send(peer.request(&method, order.requests[0].clone())?).await?;
                Outcome::default()
            }
            // A cancelled call has no outcome here: its future was dropped.
            ("receive", Some(open)) => open.outcomes.recv().await.unwrap_or_else(|| Status::cancelled("").into()),
            ("half_close", Some(open)) => {
                open.requests = None;
                Outcome::default()
            }
            ("cancel", Some(open)) => {
                open.task.abort();
                Outcome::default()
            }
            (unknown, _) => return Err(format!("unknown, or without a stream: {unknown}").into()),
        };
        println!("{}", serde_json::to_string(&outcome)?);
    }
    Ok(())
}
