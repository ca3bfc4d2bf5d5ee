//! cargo test, with fe2o3-amqp: the broker is a process that ends with each test.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use fe2o3_amqp::types::messaging::Outcome;
use fe2o3_amqp::{Connection, Sender, Session};

struct Broker {
    url: String,
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    server: Child,
}

impl Broker {
    fn start() -> Self {
        let name = std::env::var("AMQP_BROKER").unwrap_or("amqp-broker".into());
        let mut server = Command::new(name)
            .arg("test-server")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("amqp-broker is there");
        let mut answers = BufReader::new(server.stdout.take().unwrap());
        let mut url = String::new();
        answers.read_line(&mut url).unwrap();
        let commands = server.stdin.take();
        Broker { url: url.trim().into(), commands, answers, server }
    }

    fn ask(&mut self, command: &str) -> String {
        writeln!(self.commands.as_mut().unwrap(), "{command}").unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        assert!(answer.starts_with("{\"result\""), "{answer}");
        answer.trim().into()
    }

    async fn send(&self, body: &str) -> Outcome {
        let mut connection = Connection::open("shop", self.url.as_str()).await.unwrap();
        let mut session = Session::begin(&mut connection).await.unwrap();
        let mut sender = Sender::attach(&mut session, "shop", "orders").await.unwrap();
        let outcome = sender.send(body).await.unwrap();
        sender.close().await.unwrap();
        session.end().await.unwrap();
        connection.close().await.unwrap();
        outcome
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        drop(self.commands.take());
        self.server.wait().unwrap();
    }
}

#[tokio::test]
async fn an_order_is_sent() {
    let mut broker = Broker::start();
    assert!(broker.send("a pair of shoes").await.is_accepted());
    assert_eq!(broker.ask(r#"["depth", "orders"]"#), r#"{"result": 1}"#);
    assert!(broker.ask(r#"["peek", "orders"]"#).contains("a pair of shoes"));
}

#[tokio::test]
async fn an_order_is_refused() {
    let mut broker = Broker::start();
    broker.ask(r#"["message", "reject", {"text": "sold out"}]"#);
    assert!(broker.send("another pair").await.is_rejected());
    assert_eq!(broker.ask(r#"["depth", "orders"]"#), r#"{"result": 0}"#);
}
