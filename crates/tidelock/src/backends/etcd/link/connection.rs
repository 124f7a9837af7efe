//! One connection to one member: requests and answers.

use futures_util::stream;
use tonic::{
    Request, Status, Streaming,
    client::Grpc,
    codegen::http::uri::PathAndQuery,
    metadata::{Ascii, MetadataValue},
    transport::Channel,
};
use tonic_prost::ProstCodec;

use crate::backends::etcd::proto::{Ask, RangeResponse, StatusResponse};

/// The lines of very long queues are long.
const LARGEST_ANSWER: usize = 256 << 20;

/// A connection to a member.
#[derive(Clone)]
pub(in crate::backends::etcd) struct Connection {
    grpc: Grpc<Channel>,
    pub(super) token: Option<MetadataValue<Ascii>>,
    pub(in crate::backends::etcd) number: u64,
    pub(super) greeting: Option<Greeting>,
}

/// What a member says when it is connected: its status, and the key that epochs begin with.
#[derive(Clone, Debug)]
pub(in crate::backends::etcd) struct Greeting {
    pub(in crate::backends::etcd) status: StatusResponse,
    pub(in crate::backends::etcd) base: RangeResponse,
}

impl Connection {
    pub(super) fn new(channel: Channel, number: u64) -> Self {
        let grpc = Grpc::new(channel).max_decoding_message_size(LARGEST_ANSWER);
        Self { grpc, token: None, number, greeting: None }
    }

    pub(super) fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(token) = &self.token {
            request.metadata_mut().insert("token", token.clone());
        }
        request
    }

    pub(super) async fn send<A: Ask>(self, ask: A, by_stream: bool) -> Result<A::Answer, Status> {
        if by_stream { self.ask_by_stream(ask).await } else { self.ask(ask).await }
    }

    pub(super) async fn ask<A: Ask>(mut self, ask: A) -> Result<A::Answer, Status> {
        let request = self.request(ask);
        self.ready().await?;
        let codec = ProstCodec::<A, A::Answer>::default();
        let answer = self.grpc.unary(request, PathAndQuery::from_static(A::PATH), codec).await?;
        Ok(answer.into_inner())
    }

    async fn ask_by_stream<A: Ask>(mut self, ask: A) -> Result<A::Answer, Status> {
        let request = self.request(stream::iter([ask]));
        let mut answers = self.open::<A>(request).await?;
        let answer = answers.message().await?;
        answer.ok_or_else(|| Status::unknown("the server ended the stream without an answer"))
    }

    pub(super) async fn open<A: Ask>(
        &mut self,
        request: Request<impl futures_util::Stream<Item = A> + Send + 'static>,
    ) -> Result<Streaming<A::Answer>, Status> {
        self.ready().await?;
        let codec = ProstCodec::<A, A::Answer>::default();
        let answers = self.grpc.streaming(request, PathAndQuery::from_static(A::PATH), codec).await?;
        Ok(answers.into_inner())
    }

    async fn ready(&mut self) -> Result<(), Status> {
        self.grpc.ready().await.map_err(|error| Status::from_error(error.into()))
    }
}
