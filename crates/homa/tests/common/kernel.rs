//! System calls of tests that no safe function makes.

use libc::c_long;

/// Makes the system refuse calls of this thread and of those that it starts.
pub fn refuse(calls: &[c_long], errno: i32) {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let answer = |what| statement(libc::BPF_RET | libc::BPF_K, what);
    // The number of the system call is the first field of what the filter sees.
    let mut filter = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0)];
    for &call in calls {
        let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        filter.push(libc::sock_filter { jf: 1, ..statement(equal, call as u32) });
        filter.push(answer(libc::SECCOMP_RET_ERRNO | errno as u32));
    }
    filter.push(answer(libc::SECCOMP_RET_ALLOW));
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the pointer is to a program that outlives the call, and the kernel copies it.
    let refused = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            | libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
    };
    assert_eq!(refused, 0, "{}", std::io::Error::last_os_error());
}

#[cfg(feature = "xdp")]
/// True if this kernel copies as many frames as it is asked to in one system call.
pub fn has_a_budget() -> bool {
    // SAFETY: the calls take no pointers but one to a number of the length passed.
    unsafe {
        let socket = libc::socket(libc::AF_XDP, libc::SOCK_RAW, 0);
        let (frames, length) = (64u32, 4);
        let refused =
            libc::setsockopt(socket, libc::SOL_XDP, 9, (&raw const frames).cast(), length) < 0;
        let error = std::io::Error::last_os_error().raw_os_error();
        libc::close(socket);
        // Without a ring, kernels that know the option refuse its value.
        !refused || error == Some(libc::EACCES)
    }
}
