//! Calls of all kinds: what a client and a server see of each other.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::MetadataValue;
use tonic::{Code, Request};

use super::pair::{Pair, Service};
use crate::generated::{
    EchoStatus, Empty, ResponseParameters, SimpleRequest, StreamingInputCallRequest,
    StreamingOutputCallRequest,
};
use crate::service::{payload, reaches};

fn outputs(sizes: impl IntoIterator<Item = usize>) -> StreamingOutputCallRequest {
    let one = |size| ResponseParameters { size: size as i32, interval_us: 0 };
    StreamingOutputCallRequest {
        response_parameters: sizes.into_iter().map(one).collect(),
        ..StreamingOutputCallRequest::default()
    }
}

fn unary(request: usize, response: usize) -> SimpleRequest {
    SimpleRequest {
        response_size: response as i32,
        payload: payload(request),
        ..SimpleRequest::default()
    }
}

#[tokio::test]
async fn unary_calls_of_all_sizes_are_answered() {
    let service = Service::start().await;
    let pair = Pair::to(&service.at, &[]);
    let mut client = pair.client();
    for size in [0, 100, 70_000, (4 << 20) - 20, 20 << 20] {
        let response = client.unary_call(unary(size, size)).await.unwrap();
        assert_eq!(response.into_inner().payload.map(|payload| payload.body.len()), Some(size));
    }
    assert_eq!(client.empty_call(Empty {}).await.unwrap().into_inner(), Empty {});
    let status = client.unimplemented_call(Empty {}).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Unimplemented, "as the case asks"));
}

/// RPCs that an engine has made, by its metrics.
pub fn rpcs(metrics: &str) -> u64 {
    let mut page = TcpStream::connect(metrics.strip_suffix("/metrics").unwrap()).unwrap();
    page.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut text = String::new();
    page.read_to_string(&mut text).unwrap();
    let counts = text.lines().filter(|line| line.starts_with("homa_rpc_duration_seconds_count"));
    counts.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unary_call_is_one_rpc() {
    let service = Service::start().await;
    let mut pair = Pair::to(&service.at, &["--metrics", "127.0.0.1:0"]);
    let metrics = pair.front.line("metrics at http://");
    let mut client = pair.client();
    for size in [100, 200_000, (4 << 20) - 20] {
        let mut taken = Vec::new();
        // A busy machine may be slower than the proxy waits.
        while taken.len() < 10 && !taken.contains(&1) {
            let before = rpcs(&metrics);
            client.unary_call(unary(size, size)).await.unwrap();
            taken.push(rpcs(&metrics) - before);
        }
        assert!(taken.contains(&1), "{size} bytes took {taken:?} RPCs");
    }
}

#[tokio::test]
async fn metadata_and_trailers_pass_in_both_directions() {
    let service = Service::start().await;
    let pair = Pair::to(&service.at, &[]);
    let bytes = MetadataValue::from_bytes(&[0, 0xab, 0xff]);
    let mut request = Request::new(unary(1, 1));
    request.metadata_mut().insert("x-grpc-test-echo-initial", "first".parse().unwrap());
    request.metadata_mut().append("x-grpc-test-echo-initial", "second".parse().unwrap());
    request.metadata_mut().insert_bin("x-grpc-test-echo-trailing-bin", bytes.clone());
    request.metadata_mut().insert("host", "other".parse().unwrap());
    let response = pair.client().unary_call(request).await.unwrap();
    let returned = response.metadata().get_bin("x-grpc-test-echo-trailing-bin").unwrap();
    assert_eq!(returned.to_bytes().unwrap(), bytes.to_bytes().unwrap());
    let seen = service.metadata.lock().unwrap().clone();
    let values: Vec<_> = seen.get_all("x-grpc-test-echo-initial").iter().collect();
    assert_eq!(values, ["first", "second"]);
    assert_eq!(seen.get("te").unwrap(), "trailers");
    assert!(!seen.contains_key("host"), "it could contradict `:authority`");
    assert!(seen.get("user-agent").unwrap().to_str().unwrap().starts_with("tonic/"), "{seen:?}");

    let mut request = Request::new(unary(1, 1));
    request.metadata_mut().insert("refuse", "1".parse().unwrap());
    let status = pair.client().unary_call(request).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::FailedPrecondition, "not now: é"));
    assert_eq!(status.details(), [1, 2, 3]);
    let trailing = status.metadata().get_bin("x-trailing-bin").unwrap();
    assert_eq!(trailing.to_bytes().unwrap(), [0xab; 3][..]);
}

#[tokio::test]
async fn streams_pass_in_both_directions() {
    let service = Service::start().await;
    let pair = Pair::to(&service.at, &[]);
    let mut client = pair.client();
    let inputs = (0..300).map(|size| StreamingInputCallRequest { payload: payload(size) });
    let sum = client.streaming_input_call(tokio_stream::iter(inputs)).await.unwrap();
    assert_eq!(sum.into_inner().aggregated_payload_size, 299 * 300 / 2);
    let responses = client.streaming_output_call(outputs(0..300)).await.unwrap().into_inner();
    let sizes: Vec<_> =
        responses.map(|next| next.unwrap().payload.unwrap().body.len()).collect().await;
    assert!(sizes.into_iter().eq(0..300));
    let (send, requests) = tokio::sync::mpsc::channel(1);
    let calling = client.full_duplex_call(ReceiverStream::new(requests));
    // Its head comes before any request.
    let mut responses = calling.await.unwrap().into_inner();
    for size in [31_415, 9, 200_000] {
        send.send(outputs([size])).await.unwrap();
        assert_eq!(responses.next().await.unwrap().unwrap().payload, payload(size));
    }
    let status = Some(EchoStatus { code: 2, message: "\t☺ 😈\r\n".into() });
    send.send(StreamingOutputCallRequest { response_status: status, ..outputs([]) }).await.unwrap();
    let status = responses.next().await.unwrap().unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Unknown, "\t☺ 😈\r\n"));
}

#[tokio::test]
async fn more_streams_than_a_connection_allows_find_another() {
    let service = Service::start().await;
    let pair = Pair::to(&service.at, &[]);
    let mut client = pair.client();
    let mut open = Vec::new();
    for _ in 0..150 {
        let (send, requests) = tokio::sync::mpsc::channel(1);
        send.send(outputs([5])).await.unwrap();
        let responses = client.full_duplex_call(ReceiverStream::new(requests)).await.unwrap();
        let mut responses = responses.into_inner();
        let next = tokio::time::timeout(Duration::from_secs(20), responses.next()).await;
        assert_eq!(next.expect("a response").unwrap().unwrap().payload, payload(5));
        open.push((send, responses));
    }
}

#[tokio::test]
async fn a_slow_reader_delays_the_server() {
    let service = Service::start().await;
    let pair = Pair::to(&service.at, &[]);
    let mut client = pair.client();
    let responses = client.streaming_output_call(outputs([50_000; 2_000])).await.unwrap();
    let mut responses = responses.into_inner();
    responses.next().await.unwrap().unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    // Of 100 MB, what fits into the windows and buffers of two connections over TCP.
    let unread = service.seen.written.load(Ordering::SeqCst);
    assert!(unread < 400, "{unread} written, one read");
    // Other calls of the same connections are not in its way.
    let other = client.unary_call(unary(1, 100_000));
    tokio::time::timeout(Duration::from_secs(20), other).await.expect("an answer").unwrap();
}

#[tokio::test]
async fn a_deadline_reaches_the_server_and_ends_the_call() {
    let service = Service::start().await;
    let pair = Pair::to(&service.at, &[]);
    let mut request = Request::new(unary(1, 1));
    request.metadata_mut().insert("sleep", "1".parse().unwrap());
    // Not `set_timeout`, which the client would also obey itself.
    request.metadata_mut().insert("grpc-timeout", "200m".parse().unwrap());
    let status = pair.client().unary_call(request).await.unwrap_err();
    assert!(matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled), "{status}");
    let left = service.metadata.lock().unwrap().get("grpc-timeout").cloned().expect("a timeout");
    let left = left.to_str().unwrap().to_owned();
    let nanos: u64 = left.strip_suffix('n').or(left.strip_suffix('u')).unwrap().parse().unwrap();
    let nanos = if left.ends_with('u') { nanos * 1_000 } else { nanos };
    assert!(nanos < 200_000_000, "some of the time has passed: {left}");
    reaches(&service.seen.dropped, 1).await;
}

#[tokio::test]
async fn a_call_that_its_client_cancels_ends_at_the_server() {
    let service = Service::start().await;
    let pair = Pair::to(&service.at, &[]);
    let mut client = pair.client();
    let mut request = Request::new(unary(1, 1));
    request.metadata_mut().insert("sleep", "1".parse().unwrap());
    let call = tokio::spawn({
        let mut client = client.clone();
        async move { client.unary_call(request).await }
    });
    reaches(&service.seen.slept, 1).await;
    call.abort();
    reaches(&service.seen.dropped, 1).await;
    let responses = client.streaming_output_call(outputs([10_000; 4_000])).await.unwrap();
    let mut responses = responses.into_inner();
    responses.next().await.unwrap().unwrap();
    drop(responses);
    reaches(&service.seen.dropped, 2).await;
}
