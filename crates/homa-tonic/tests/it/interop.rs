//! The eleven cases of gRPC's interoperability tests that a client of tonic can run.

use homa_tonic::Endpoint;
use tokio_stream::StreamExt;
use tonic::metadata::MetadataValue;
use tonic::{Code, Request};

use crate::generated::test_service_client::TestServiceClient;
use crate::generated::unimplemented_service_client::UnimplementedServiceClient;
use crate::generated::{
    EchoStatus, Empty, ResponseParameters, SimpleRequest, StreamingInputCallRequest,
    StreamingOutputCallRequest,
};
use crate::service::{channel, client, payload, serve};

const LARGE_REQUEST: usize = 271_828;
const LARGE_RESPONSE: usize = 314_159;
const REQUESTS: [usize; 4] = [27_182, 8, 1_828, 45_904];
const RESPONSES: [usize; 4] = [31_415, 9, 2_653, 58_979];

fn large() -> SimpleRequest {
    SimpleRequest {
        response_size: LARGE_RESPONSE as i32,
        payload: payload(LARGE_REQUEST),
        ..SimpleRequest::default()
    }
}

fn output(request: usize, response: usize) -> StreamingOutputCallRequest {
    StreamingOutputCallRequest {
        response_parameters: vec![ResponseParameters { size: response as i32, interval_us: 0 }],
        payload: payload(request),
        ..StreamingOutputCallRequest::default()
    }
}

#[tokio::test]
async fn empty_unary() {
    let running = serve().await;
    let response = client(&running).await.empty_call(Empty {}).await.unwrap();
    assert_eq!(response.into_inner(), Empty {});
}

#[tokio::test]
async fn large_unary() {
    let running = serve().await;
    let response = client(&running).await.unary_call(large()).await.unwrap().into_inner();
    assert_eq!(response.payload, payload(LARGE_RESPONSE));
}

#[tokio::test]
async fn a_long_unary_call_is_one_rpc() {
    let running = serve().await;
    let engine = homa::Engine::bind("127.0.0.1:0".parse().unwrap(), homa::Config::default());
    let engine = engine.unwrap();
    engine.drive_on_tokio().unwrap();
    let endpoint = Endpoint::from_shared(format!("homa://{}", running.at)).unwrap();
    let mut client =
        TestServiceClient::new(endpoint.client(engine.client()).connect().await.unwrap())
            .max_decoding_message_size(8 << 20);
    let rpcs = || engine.metrics().latencies.iter().map(|of| of.times.count()).sum::<u64>();
    for size in [LARGE_RESPONSE, 4 << 20] {
        let before = rpcs();
        let request = SimpleRequest { response_size: size as i32, ..large() };
        let response = client.unary_call(request).await.unwrap().into_inner();
        assert_eq!(response.payload, payload(size));
        assert_eq!(rpcs() - before, 1, "{size} bytes");
    }
}

#[tokio::test]
async fn client_streaming() {
    let running = serve().await;
    let inputs = REQUESTS.map(|size| StreamingInputCallRequest { payload: payload(size) });
    let inputs = tokio_stream::iter(inputs);
    let response = client(&running).await.streaming_input_call(inputs).await.unwrap();
    assert_eq!(response.into_inner().aggregated_payload_size, 74_922);
}

#[tokio::test]
async fn server_streaming() {
    let running = serve().await;
    let wanted = RESPONSES.map(|size| ResponseParameters { size: size as i32, interval_us: 0 });
    let request = StreamingOutputCallRequest {
        response_parameters: wanted.to_vec(),
        ..StreamingOutputCallRequest::default()
    };
    let outputs = client(&running).await.streaming_output_call(request).await.unwrap();
    let outputs: Vec<_> =
        outputs.into_inner().map(|output| output.unwrap().payload).collect().await;
    assert_eq!(outputs, RESPONSES.map(payload));
}

#[tokio::test]
async fn ping_pong() {
    let running = serve().await;
    let (send, requests) = tokio::sync::mpsc::channel(1);
    let requests = tokio_stream::wrappers::ReceiverStream::new(requests);
    send.send(output(REQUESTS[0], RESPONSES[0])).await.unwrap();
    let responses = client(&running).await.full_duplex_call(requests).await.unwrap();
    let mut responses = responses.into_inner();
    for next in 1..=4 {
        let response = responses.next().await.unwrap().unwrap();
        assert_eq!(response.payload, payload(RESPONSES[next - 1]));
        if next < 4 {
            send.send(output(REQUESTS[next], RESPONSES[next])).await.unwrap();
        }
    }
    drop(send);
    assert!(responses.next().await.is_none());
}

#[tokio::test]
async fn empty_stream() {
    let running = serve().await;
    let nothing = tokio_stream::empty();
    let mut responses =
        client(&running).await.full_duplex_call(nothing).await.unwrap().into_inner();
    assert!(responses.next().await.is_none());
}

#[tokio::test]
async fn custom_metadata() {
    let running = serve().await;
    let initial = MetadataValue::from_static("test_initial_metadata_value");
    let trailing = MetadataValue::from_bytes(&[0xab, 0xab, 0xab]);
    let mut request = Request::new(large());
    request.metadata_mut().insert("x-grpc-test-echo-initial", initial.clone());
    request.metadata_mut().insert_bin("x-grpc-test-echo-trailing-bin", trailing.clone());
    let response = client(&running).await.unary_call(request).await.unwrap();
    let metadata = response.metadata();
    assert_eq!(metadata.get("x-grpc-test-echo-initial"), Some(&initial));
    let returned = metadata.get_bin("x-grpc-test-echo-trailing-bin").unwrap();
    assert_eq!(returned.to_bytes().unwrap(), trailing.to_bytes().unwrap());
}

async fn status_of_both_kinds_of_calls(message: &str) {
    let running = serve().await;
    let mut client = client(&running).await;
    let status = Some(EchoStatus { code: 2, message: message.into() });
    let request = SimpleRequest { response_status: status.clone(), ..SimpleRequest::default() };
    let unary = client.unary_call(request).await.unwrap_err();
    assert_eq!((unary.code(), unary.message()), (Code::Unknown, message));
    let request = StreamingOutputCallRequest {
        response_status: status,
        ..StreamingOutputCallRequest::default()
    };
    let responses = client.full_duplex_call(tokio_stream::iter([request])).await.unwrap();
    let duplex = responses.into_inner().next().await.unwrap().unwrap_err();
    assert_eq!((duplex.code(), duplex.message()), (Code::Unknown, message));
}

#[tokio::test]
async fn status_code_and_message() {
    status_of_both_kinds_of_calls("test status message").await;
}

#[tokio::test]
async fn special_status_message() {
    let message = "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n";
    status_of_both_kinds_of_calls(message).await;
}

#[tokio::test]
async fn unimplemented_method() {
    let running = serve().await;
    let status = client(&running).await.unimplemented_call(Empty {}).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
}

#[tokio::test]
async fn unimplemented_service() {
    let running = serve().await;
    let mut client = UnimplementedServiceClient::new(channel(running.at).await);
    let status = client.unimplemented_call(Empty {}).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
}
