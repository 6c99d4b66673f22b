//! The engines of a client or a server, as they are opened: one, or for a server one at each of its
//! addresses.

use std::net::SocketAddr;
use std::os::fd::RawFd;

use homa::driver::duplicate;
use homa::{Client, Config, Engine, OpenError, Server};

/// Engines, at least one, and their servers.
pub struct OpenedEngines {
    pub engines: Vec<Engine>,
    /// One for each engine, or none.
    pub servers: Vec<Server>,
}

impl OpenedEngines {
    /// Over a duplicate of a socket that is bound already.
    pub fn over(descriptor: RawFd, serves: bool, config: Config) -> Result<Self, OpenError> {
        let socket = duplicate(descriptor)?;
        if !serves {
            return Ok(Self::for_calls(Engine::from_socket(socket, config.calls_only())?));
        }
        let server = Server::from_socket(socket, config)?;
        Ok(Self { engines: vec![server.engine().clone()], servers: vec![server] })
    }

    /// With a server at each address. Port 0 is the port that was chosen for the first.
    pub fn serving(addresses: &[SocketAddr], config: &Config) -> Result<Self, OpenError> {
        let (mut engines, mut servers) = (Vec::<Engine>::new(), Vec::new());
        for &(mut at) in addresses {
            if at.port() == 0 {
                at.set_port(engines.first().map_or(0, |first| first.local_addr().port()));
            }
            let engine = Engine::bind(at, config.clone())?;
            servers.push(engine.serve()?);
            engines.push(engine);
        }
        Ok(Self { engines, servers })
    }

    /// For calls alone, at an address or any.
    pub fn calling(at: Option<SocketAddr>, config: Config) -> Result<Self, OpenError> {
        Ok(Self::for_calls(match at {
            Some(at) => Engine::bind(at, config.calls_only())?,
            None => Client::with(config)?.engine().clone(),
        }))
    }

    fn for_calls(engine: Engine) -> Self {
        Self { engines: vec![engine], servers: Vec::new() }
    }
}
