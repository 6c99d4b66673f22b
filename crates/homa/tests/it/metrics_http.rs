//! The exporter serves the metrics over HTTP until it is dropped.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use homa::metrics::http::Exporter;
use homa::{Client, Config, Engine, Server};

fn get(at: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn an_engine_is_scraped_until_its_exporter_ends() {
    let server = Server::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let exporter = Exporter::loopback(server.engine(), 0).unwrap();
    let at = exporter.local_addr();
    assert!(at.ip().is_loopback());
    let (to, engine) = (server.local_addr(), server.engine().clone());
    let serving = std::thread::spawn(move || server.accept().unwrap().reply("done").unwrap());
    Client::new().unwrap().call(to, "work").unwrap();
    serving.join().unwrap();
    let page = get(at, "GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n");
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
    assert!(page.contains("Content-Type: application/openmetrics-text; version=1.0.0"), "{page}");
    assert!(page.contains("\nhoma_protocol_requests_delivered_total 1\n"), "{page}");
    let labels = "direction=\"server\",outcome=\"ok\",size=\"short\"";
    let count = format!("homa_rpc_duration_seconds_count{{{labels}}} 1\n");
    assert!(page.contains(&count) && page.ends_with("# EOF\n"), "{page}");
    assert!(get(at, "GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
    assert!(get(at, "DELETE /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
    let healthz = || get(at, "GET /healthz HTTP/1.1\r\n\r\n");
    assert!(healthz().starts_with("HTTP/1.1 200 OK\r\n") && healthz().ends_with("healthy\n"));
    assert!(page.contains("\nhoma_engine_unhealthy 0\n"), "{page}");
    engine.hand_over(std::time::Duration::ZERO).unwrap();
    assert!(healthz().starts_with("HTTP/1.1 503 "), "the engine has ended");
    let page = get(at, "GET /metrics HTTP/1.1\r\n\r\n");
    assert!(page.contains("\nhoma_engine_unhealthy 1\n"), "{page}");
    drop(exporter);
    TcpListener::bind(at).expect("the exporter is closed");
}

#[test]
fn idle_connections_do_not_keep_others_from_the_page() {
    let server = Server::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let exporter = Exporter::loopback(server.engine(), 0).unwrap();
    let at = exporter.local_addr();
    let idle = || TcpStream::connect(at).unwrap();
    let half = || {
        let mut stream = idle();
        stream.write_all(b"GET /metrics HTTP/1.1\r\n").unwrap();
        stream
    };
    // Its response fits in the socket's buffer, and it does not close.
    let answered = || {
        let mut stream = idle();
        stream.write_all(b"GET /healthz HTTP/1.1\r\n\r\n").unwrap();
        stream.read_exact(&mut [0; 12]).unwrap();
        stream
    };
    for hold in [&idle as &dyn Fn() -> TcpStream, &half, &answered] {
        let mut held: Vec<TcpStream> = (0..24).map(|_| hold()).collect();
        for turn in 0..40 {
            let page = get(at, "GET /healthz HTTP/1.1\r\n\r\n");
            assert!(page.ends_with("healthy\n"), "{turn}: {page:?}");
            // The oldest connects again.
            held.remove(0);
            held.push(hold());
        }
    }
}

#[test]
fn named_engines_and_the_application_share_a_page() {
    let open = |config: Config| Engine::bind("127.0.0.1:0".parse().unwrap(), config).unwrap();
    let named = |name: &str| open(Config::default().name(name));
    let servers = ["front", "front", "back"].map(|name| named(name).serve().unwrap());
    let client = open(Config::default()).client();
    for server in &servers {
        let (server, to) = (server.clone(), server.local_addr());
        let serving = std::thread::spawn(move || server.accept().unwrap().reply("done").unwrap());
        client.call(to, "work").unwrap();
        serving.join().unwrap();
    }
    let mut engines = servers.each_ref().map(|server| server.engine().clone()).to_vec();
    engines.push(client.engine().clone());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = || "# TYPE users gauge\nusers 7\n# EOF\n".to_owned();
    let exporter = Exporter::with(&engines, listener, own).unwrap();
    let page = get(exporter.local_addr(), "GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n");
    let family: Vec<&str> =
        page.lines().filter(|line| line.contains("homa_protocol_requests_delivered")).collect();
    assert_eq!(
        family[1..],
        [
            "# TYPE homa_protocol_requests_delivered counter",
            "homa_protocol_requests_delivered_total{engine=\"front\"} 2",
            "homa_protocol_requests_delivered_total{engine=\"back\"} 1",
            "homa_protocol_requests_delivered_total 0",
        ]
    );
    let count = "homa_rpc_duration_seconds_count{engine=\"back\",direction=\"server\",";
    assert!(page.contains(&format!("{count}outcome=\"ok\",size=\"short\"}} 1\n")), "{page}");
    for healthy in ["{engine=\"front\"} 0", "{engine=\"back\"} 0", " 0"] {
        assert!(page.contains(&format!("\nhoma_engine_unhealthy{healthy}\n")), "{page}");
    }
    assert!(page.ends_with("\nusers 7\n# EOF\n"), "{page}");
    assert_eq!(page.matches("# EOF").count(), 1);
}
