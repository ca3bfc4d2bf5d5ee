//! Logs in as each line of standard input says; README.md has the lines and the answers.

use std::io::{Lines, StdinLock, stdin};
use std::time::Duration;

use fe2o3_amqp::connection::ConnectionHandle;
use fe2o3_amqp::sasl_profile::{SaslProfile, SaslScramSha1, SaslScramSha256, SaslScramSha512};
use fe2o3_amqp::session::SessionHandle;
use fe2o3_amqp::{Connection, Sender, Session};
use fe2o3_amqp_ws::WebSocketStream;
use tokio::net::TcpStream;
use tokio::time::timeout;

type Failable<T> = Result<T, Box<dyn std::error::Error>>;

const PATIENCE: Duration = Duration::from_secs(60);

fn profile(mechanism: &str, user: &str, proof: &str) -> Failable<SaslProfile> {
    Ok(match mechanism {
        "ANONYMOUS" => SaslProfile::Anonymous,
        "PLAIN" => SaslProfile::Plain { username: user.to_string(), password: proof.to_string() },
        "SCRAM-SHA-1" => SaslProfile::ScramSha1(SaslScramSha1::new(user, proof)),
        "SCRAM-SHA-256" => SaslProfile::ScramSha256(SaslScramSha256::new(user, proof)),
        "SCRAM-SHA-512" => SaslProfile::ScramSha512(SaslScramSha512::new(user, proof)),
        other => return Err(format!("{other} is not one of this library's").into()),
    })
}

/// The library trusts what OpenSSL does: the environment variable SSL_CERT_FILE names it.
async fn open(url: &str, profile: SaslProfile) -> Failable<ConnectionHandle<()>> {
    let (scheme, rest) = url.split_once("://").ok_or("the URL has no scheme")?;
    let address = rest.trim_end_matches('/');
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let builder = Connection::builder().container_id("logins").hostname(host).domain(host).sasl_profile(profile);
    if scheme.starts_with("ws") {
        let stream = WebSocketStream::connect_tls_with_config(url, None, true, None).await?;
        return Ok(builder.scheme("amqp").open_with_stream(stream).await?);
    }
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(match scheme {
        "amqp" => builder.scheme("amqp").open_with_stream(stream).await?,
        "amqps" => builder.scheme("amqps").alt_tls_establishment(true).open_with_stream(stream).await?,
        "amqp+tls" => builder.scheme("amqps").open_with_stream(stream).await?, // with AMQP's header for TLS
        other => return Err(format!("{other} is no scheme of AMQP").into()),
    })
}

async fn log_in(line: &str) -> Failable<(ConnectionHandle<()>, SessionHandle<()>, Sender)> {
    let [url, mechanism, user, proof, ..] = line.split('\t').collect::<Vec<_>>()[..] else {
        return Err("the line has less than four fields".into());
    };
    let mut connection = open(url, profile(mechanism, user, proof)?).await?;
    let mut session = Session::begin(&mut connection).await?;
    let mut sender = Sender::attach(&mut session, "logins", "greetings").await?;
    let outcome = sender.send("hello").await?;
    outcome.accepted_or_else(|outcome| format!("the outcome is {outcome:?}"))?;
    Ok((connection, session, sender))
}

async fn answer(line: &str, lines: &mut Lines<StdinLock<'_>>) -> Failable<()> {
    let (mut connection, mut session, sender) = timeout(PATIENCE, log_in(line)).await??;
    println!("in");
    lines.next();
    sender.close().await?;
    session.end().await?;
    connection.close().await?;
    println!("out");
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Failable<()> {
    let mut lines = stdin().lines();
    while let Some(line) = lines.next() {
        if let Err(error) = answer(&line?, &mut lines).await {
            println!("refused {}", format!("{error:?}").replace('\n', " "));
        }
    }
    Ok(())
}
