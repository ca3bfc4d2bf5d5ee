//! One connection with one session, and the queue of one check.

use std::env;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fe2o3_amqp::connection::ConnectionHandle;
use fe2o3_amqp::link::delivery::Sendable;
use fe2o3_amqp::link::receiver::CreditMode;
use fe2o3_amqp::sasl_profile::SaslProfile;
use fe2o3_amqp::session::SessionHandle;
use fe2o3_amqp::{Connection, Delivery, Receiver, Sender, Session};
use fe2o3_amqp_types::definitions::{ReceiverSettleMode, SenderSettleMode};
use fe2o3_amqp_types::messaging::{AmqpValue, Body, Message, Outcome, Source};
use serde_amqp::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// What a check returns: nothing, or the sentence that follows FAIL.
pub type Checked<T> = Result<T, String>;
pub type AnyMessage = Message<Body<Value>>;
pub type AnyDelivery = Delivery<Body<Value>>;

const STEP_TIMEOUT: Duration = Duration::from_secs(20);

/// Runs one step of a check with a limit, and turns the library's error into the sentence of a failure.
pub async fn step<T, E: std::fmt::Debug>(what: &str, future: impl Future<Output = Result<T, E>>) -> Checked<T> {
    match timeout(STEP_TIMEOUT, future).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(format!("{what}: expected no error, got {error:?}")),
        Err(_) => Err(format!("{what}: expected an answer within {STEP_TIMEOUT:?}, got none")),
    }
}

pub fn expect<T: PartialEq + std::fmt::Debug>(what: &str, expected: T, got: T) -> Checked<()> {
    if expected == got {
        return Ok(());
    }
    let show = |value: &T| format!("{value:?}").chars().take(300).collect::<String>();
    Err(format!("{what}: expected {}, got {}", show(&expected), show(&got)))
}

pub fn text(body: &str) -> AnyMessage {
    value(Value::String(body.to_string()))
}

pub fn value(body: Value) -> AnyMessage {
    with_body(Body::Value(AmqpValue(body)))
}

pub fn with_body(body: Body<Value>) -> AnyMessage {
    Message {
        header: None,
        delivery_annotations: None,
        message_annotations: None,
        properties: None,
        application_properties: None,
        body,
        footer: None,
    }
}

pub fn body_of(delivery: &AnyDelivery) -> Value {
    match delivery.body() {
        Body::Value(AmqpValue(value)) => value.clone(),
        other => Value::String(format!("not an amqp-value section but {other:?}")),
    }
}

pub fn string(text: &str) -> Value {
    Value::String(text.to_string())
}

pub fn texts(bodies: &[&str]) -> Vec<AnyMessage> {
    bodies.iter().map(|body| text(body)).collect()
}

pub fn strings(bodies: &[&str]) -> Vec<Value> {
    bodies.iter().map(|body| string(body)).collect()
}

pub fn credentials() -> Option<(String, String)> {
    let user = env::var("AMQP_USER").ok()?;
    Some((user, env::var("AMQP_PASSWORD").unwrap_or_default()))
}

pub struct Client {
    url: String,
    queue: String,
    /// In the names of the links: one of another connection of this container would take a link of the same name over.
    name: String,
    links: u32,
    connection: ConnectionHandle<()>,
    session: SessionHandle<()>,
}

impl Client {
    pub async fn connect(url: &str) -> Checked<Self> {
        let moment = SystemTime::now().duration_since(UNIX_EPOCH).map_err(|error| error.to_string())?;
        let name = format!("{}-{:x}", std::process::id(), moment.as_nanos());
        let profile = match credentials() {
            Some((username, password)) => SaslProfile::Plain { username, password },
            None => SaslProfile::Anonymous,
        };
        let (connection, session) = open(url, profile).await?;
        let queue = format!("clients-fe2o3-amqp-{name}");
        Ok(Self { url: url.to_string(), queue, name, links: 0, connection, session })
    }

    pub async fn reconnect(self) -> Checked<Self> {
        let (url, queue) = (self.url.clone(), self.queue.clone());
        self.close().await?;
        Ok(Self { queue, ..Self::connect(&url).await? })
    }

    pub async fn close(mut self) -> Checked<()> {
        step("end", self.session.end()).await?;
        step("close", self.connection.close()).await
    }

    pub fn link_name(&mut self) -> String {
        self.links += 1;
        format!("link-{}-{}", self.name, self.links)
    }

    pub async fn sender(&mut self, snd: SenderSettleMode, rcv: ReceiverSettleMode) -> Checked<Sender> {
        let builder = Sender::builder().name(self.link_name()).target(self.queue.clone());
        let builder = builder.sender_settle_mode(snd).receiver_settle_mode(rcv);
        step("attach a sender", builder.attach(&mut self.session)).await
    }

    pub async fn receiver(&mut self, credit: u32) -> Checked<Receiver> {
        let source = Source::builder().address(self.queue.clone()).build();
        self.receiver_of(source, credit, SenderSettleMode::Unsettled, ReceiverSettleMode::First).await
    }

    pub async fn receiver_of(
        &mut self,
        source: Source,
        credit: u32,
        snd: SenderSettleMode,
        rcv: ReceiverSettleMode,
    ) -> Checked<Receiver> {
        let builder = Receiver::builder().name(self.link_name()).source(source).credit_mode(CreditMode::Manual);
        let builder = builder.sender_settle_mode(snd).receiver_settle_mode(rcv);
        let mut receiver = step("attach a receiver", builder.attach(&mut self.session)).await?;
        if credit > 0 {
            step("credit", receiver.set_credit(credit)).await?;
        }
        Ok(receiver)
    }

    pub fn queue(&self) -> &str {
        &self.queue
    }

    pub fn session(&mut self) -> &mut SessionHandle<()> {
        &mut self.session
    }

    /// One more session beside the one that all other links are on.
    pub async fn another_session(&mut self) -> Checked<SessionHandle<()>> {
        step("begin", Session::begin(&mut self.connection)).await
    }

    /// One more connection, for the same queue.
    pub async fn another(&self) -> Checked<Self> {
        Ok(Self { queue: self.queue.clone(), ..Self::connect(&self.url).await? })
    }

    /// Sends each message unsettled and waits for its outcome, which must be accepted.
    pub async fn send(&mut self, messages: Vec<AnyMessage>) -> Checked<()> {
        let mut sender = self.sender(SenderSettleMode::Unsettled, ReceiverSettleMode::First).await?;
        let mut outcomes = Vec::new();
        for message in messages {
            let sendable = Sendable::builder().message(message).build();
            outcomes.push(step("send", sender.send_batchable(sendable)).await?);
        }
        for outcome in outcomes {
            let outcome = step("outcome", outcome).await?;
            expect("outcome is accepted", true, matches!(outcome, Outcome::Accepted(_)))?;
        }
        step("close the sender", sender.close()).await
    }

    pub async fn send_settled(&mut self, messages: Vec<AnyMessage>) -> Checked<()> {
        let mut sender = self.sender(SenderSettleMode::Settled, ReceiverSettleMode::First).await?;
        for message in messages {
            step("send", sender.send(Sendable::builder().message(message).build())).await?;
        }
        step("close the sender", sender.close()).await
    }

    pub async fn round_trip(&mut self, message: AnyMessage) -> Checked<AnyMessage> {
        self.send(vec![message]).await?;
        let mut receiver = self.receiver(1).await?;
        let delivery = accept(&mut receiver).await?;
        close(receiver).await?;
        Ok(delivery.into_message())
    }

    /// What the queue delivers first, on a new link.
    pub async fn next(&mut self) -> Checked<AnyDelivery> {
        let mut receiver = self.receiver(1).await?;
        let delivery = accept(&mut receiver).await?;
        close(receiver).await?;
        Ok(delivery)
    }
}

pub async fn open(url: &str, profile: SaslProfile) -> Checked<(ConnectionHandle<()>, SessionHandle<()>)> {
    let address = url.trim_start_matches("amqp://").trim_end_matches('/');
    let stream = step("connect", TcpStream::connect(address)).await?;
    // The library leaves Nagle's algorithm on: each frame behind another would wait 40 ms for the broker's kernel.
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let builder = Connection::builder().container_id("amqp-interop-fe2o3").hostname(host).sasl_profile(profile);
    let mut connection = step("open", builder.open_with_stream(stream)).await?;
    let session = step("begin", Session::begin(&mut connection)).await?;
    Ok((connection, session))
}

pub async fn receive(receiver: &mut Receiver) -> Checked<AnyDelivery> {
    step("receive", receiver.recv::<Body<Value>>()).await
}

pub async fn accept(receiver: &mut Receiver) -> Checked<AnyDelivery> {
    let delivery = receive(receiver).await?;
    step("accept", receiver.accept(&delivery)).await?;
    Ok(delivery)
}

pub async fn accept_bodies(receiver: &mut Receiver, count: usize) -> Checked<Vec<Value>> {
    let mut bodies = Vec::with_capacity(count);
    while bodies.len() < count {
        bodies.push(body_of(&accept(receiver).await?));
    }
    Ok(bodies)
}

pub async fn close(receiver: Receiver) -> Checked<()> {
    step("close the receiver", receiver.close()).await
}
