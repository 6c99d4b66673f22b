//! Keys that several clients and servers share, with the tickets that go with them.

use std::path::PathBuf;

use pyo3::prelude::*;

use super::errors;

/// `homa.rpc.Keys` is made of one. Clients and servers that were opened with it have the same
/// tickets, and none of them changes the keys of another.
#[pyclass(frozen, module = "homa.rpc")]
pub struct Keys(homa::Keys);

/// Three files of certificates, with the name that servers must prove.
type CertificateFiles = (PathBuf, PathBuf, PathBuf, Option<String>);

#[pymethods]
impl Keys {
    /// Reads a key file, or three files of certificates.
    #[new]
    #[pyo3(signature = (files, early_data))]
    fn new(files: &Bound<'_, PyAny>, early_data: bool) -> PyResult<Self> {
        let keys = read(files)?;
        Ok(Self(if early_data { keys.early_data() } else { keys }))
    }
}

/// The keys of an engine: those of a [`Keys`], or of files that it names.
pub fn of(value: &Bound<'_, PyAny>) -> PyResult<homa::Keys> {
    match value.cast::<Keys>() {
        Ok(shared) => Ok(shared.get().0.clone()),
        Err(_) => read(value),
    }
}

fn read(files: &Bound<'_, PyAny>) -> PyResult<homa::Keys> {
    let read = match files.extract::<CertificateFiles>() {
        Ok((chain, private_key, authorities, name)) => {
            let keys = homa::Keys::from_certificates(chain, private_key, authorities);
            keys.and_then(|keys| match name {
                Some(name) => keys.server_name(&name),
                None => Ok(keys),
            })
        }
        Err(_) => homa::Keys::from_file(files.extract::<PathBuf>()?),
    };
    read.map_err(|error| errors::keys(files.py(), &error))
}
