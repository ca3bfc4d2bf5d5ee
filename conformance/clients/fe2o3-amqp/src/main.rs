//! fe2o3-amqp against any AMQP 1.0 broker: `amqp-interop amqp://host:port`
//!
//! Prints one line for each check and exits 0 if none failed. Each check has its own queue and its own connection.

mod behaviour;
mod client;
mod messages;
mod values;

use std::process::ExitCode;

use client::{Checked, Client, credentials};

struct Run {
    url: String,
    part: String,
    ran: u32,
    failed: u32,
}

impl Run {
    async fn check<F>(&mut self, name: &str, check: impl FnOnce(Client) -> F)
    where
        F: Future<Output = Checked<Client>>,
    {
        if !name.contains(&self.part) {
            return;
        }
        let result = match Client::connect(&self.url).await {
            Ok(client) => match check(client).await {
                Ok(client) => client.close().await,
                Err(failure) => Err(failure),
            },
            Err(failure) => Err(failure),
        };
        self.report(name, result);
    }

    fn report(&mut self, name: &str, result: Checked<()>) {
        self.ran += 1;
        match result {
            Ok(()) => println!("ok {name}"),
            Err(failure) => {
                self.failed += 1;
                println!("FAIL {name}: {}", failure.split_whitespace().collect::<Vec<_>>().join(" "));
            }
        }
    }
}

async fn what_messages_carry(run: &mut Run) {
    run.check("amqp-value null", |c| messages::amqp_value(c, serde_amqp::Value::Null)).await;
    for (name, value) in values::simple().into_iter().chain(values::compound()) {
        run.check(&format!("amqp-value {name}"), |c| messages::amqp_value(c, value)).await;
    }
    run.check("application-properties of every simple type", messages::application_properties).await;
    run.check("message-annotations of every type", messages::message_annotations).await;
    run.check("footer", messages::footer).await;
    run.check("body data, one section and several", messages::data_bodies).await;
    run.check("body amqp-sequence, one section and several", messages::sequence_bodies).await;
    run.check("properties: all fields", messages::all_properties).await;
    run.check("properties: message-id and correlation-id of every type", messages::message_ids).await;
    run.check("header: durable, priority, ttl", messages::header).await;
}

async fn settling(run: &mut Run) {
    run.check("large message of 8 MiB", behaviour::large_message).await;
    run.check("send unsettled: the outcome is accepted", behaviour::send_unsettled).await;
    run.check("send pre-settled", behaviour::send_settled).await;
    run.check("send settled and unsettled on one link", behaviour::send_mixed).await;
    run.check("receive pre-settled: gone without a disposition", behaviour::receive_settled).await;
    run.check("outcome accepted: gone", behaviour::accepted).await;
    run.check("outcome rejected: not delivered again", behaviour::rejected).await;
    run.check("outcome released: comes again, delivery-count unchanged", behaviour::released).await;
    run.check("outcome modified, delivery-failed: delivery-count + 1", behaviour::modified_failed).await;
    let name = "outcome modified without delivery-failed: delivery-count unchanged";
    run.check(name, behaviour::modified_plain).await;
    run.check("outcome modified with message-annotations: merged", behaviour::modified_annotations).await;
    let name = "outcome modified, undeliverable-here: not to this link, but to another";
    run.check(name, behaviour::undeliverable_here).await;
    run.check("receiver-settle-mode second: gone after our outcome", behaviour::receive_second).await;
    run.check("receiver-settle-mode second on a sending link", behaviour::send_second).await;
}

async fn links_and_connections(run: &mut Run) {
    run.check("drain: 3 messages for 10 credits, the credit left is gone", behaviour::drain).await;
    run.check("reconnect: what was not settled comes again", behaviour::reconnect).await;
    run.check("browse: distribution-mode copy takes nothing away", behaviour::browse).await;
    run.check("order of 1,000 messages", behaviour::order).await;
    run.check("two competing consumers: each message exactly once", behaviour::competing).await;
    if credentials().is_some() {
        let result = behaviour::scram(&run.url).await;
        run.report("SASL SCRAM-SHA-256 and SCRAM-SHA-512", result);
    } else {
        println!("skip SASL SCRAM-SHA-256 and SCRAM-SHA-512: AMQP_USER is not set");
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(url) = arguments.first().cloned() else {
        eprintln!("usage: amqp-interop amqp://host:port [part of a check's name]");
        return ExitCode::from(2);
    };
    let mut run = Run { url, part: arguments.get(1).cloned().unwrap_or_default(), ran: 0, failed: 0 };
    what_messages_carry(&mut run).await;
    settling(&mut run).await;
    links_and_connections(&mut run).await;
    println!("skip amqp-value array empty: fe2o3-amqp writes it without the element constructor of part 1.6.24");
    println!("skip reconnect by the library: fe2o3-amqp leaves it to the application");
    if run.ran > 0 && run.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
