//! gRPC between engines with keys.

use std::time::Duration;

use homa::{Client, Config, Engine, Keys};
use homa_tonic::{ConnectError, Endpoint};
use tokio_stream::StreamExt;

use crate::generated::test_service_client::TestServiceClient;
use crate::generated::{SimpleRequest, StreamingOutputCallRequest};
use crate::service::{payload, serve_with};

fn keys(secret: u8) -> Config {
    Config::default().keys(Keys::cluster([secret; 32]).unwrap())
}

/// A client whose engine has this configuration, driven by the runtime.
fn client(config: Config) -> Client {
    let engine = Engine::bind("127.0.0.1:0".parse().unwrap(), config).unwrap();
    engine.drive_on_tokio().unwrap();
    engine.client()
}

#[tokio::test]
async fn calls_and_streams_work_between_engines_with_keys() {
    let running = serve_with(keys(1)).await;
    let endpoint = Endpoint::from_shared(format!("homa://{}", running.at)).unwrap();
    let channel = endpoint.client(client(keys(1))).connect().await.unwrap();
    let mut client = TestServiceClient::new(channel);
    let large = SimpleRequest {
        response_size: 300_000,
        payload: payload(200_000),
        ..SimpleRequest::default()
    };
    let response = client.unary_call(large).await.unwrap().into_inner();
    assert_eq!(response.payload, payload(300_000));
    let inputs = StreamingOutputCallRequest {
        response_parameters: vec![crate::generated::ResponseParameters {
            size: 9_000,
            interval_us: 0,
        }],
        ..StreamingOutputCallRequest::default()
    };
    let outputs = client.full_duplex_call(tokio_stream::iter(vec![inputs; 20])).await.unwrap();
    let outputs: Vec<_> = outputs.into_inner().collect().await;
    assert_eq!(outputs.len(), 20);
    assert!(outputs.iter().all(|output| output.as_ref().unwrap().payload == payload(9_000)));
}

#[tokio::test]
async fn another_key_or_none_is_refused_long_before_the_deadline() {
    let running = serve_with(keys(1)).await;
    for config in [keys(2), Config::default()] {
        let endpoint = Endpoint::from_shared(format!("homa://{}", running.at)).unwrap();
        let endpoint = endpoint.client(client(config)).connect_timeout(Duration::from_secs(60));
        let error = endpoint.connect().await.unwrap_err();
        let ConnectError::Unreachable { source, .. } = &error else { panic!("{error:?}") };
        let refused = matches!(**source, homa::CallError::HandshakeRefused { .. });
        assert!(refused, "{error}");
    }
}
