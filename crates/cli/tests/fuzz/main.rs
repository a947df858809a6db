//! The fuzz targets, as ordinary code: each compiles with the workspace and runs on its committed seeds.
//!
//! Targets are outside the workspace, because fuzzing needs a nightly compiler. Here this crate stands in for
//! `libfuzzer_sys`: its macro makes a function of a target.
#![allow(unused_attributes, dead_code, reason = "the targets are roots of crates of their own")]

extern crate self as libfuzzer_sys;

/// The macro in a module of its own: targets import it, as they do from `libfuzzer_sys`.
mod shim {
    macro_rules! fuzz_target {
        (|$data:ident: &[u8]| $body:block) => {
            pub(crate) fn fuzz_one_input($data: &[u8]) {
                $body
            }
        };
    }
    pub(crate) use fuzz_target;
}
pub(crate) use shim::fuzz_target;

mod seeds;

/// Has a module and a test for each target.
macro_rules! targets {
    ($($name:ident at $path:literal;)*) => {
        $(
            #[path = $path]
            mod $name;
        )*

        const TARGETS: &[&str] = &[$(stringify!($name)),*];

        mod each_seed_passes {
            $(
                #[test]
                fn $name() {
                    crate::seeds::run_all(stringify!($name), crate::$name::fuzz_one_input);
                }
            )*
        }
    };
}

targets! {
    capture at "../../../../fuzz/fuzz_targets/capture.rs";
    client_hello at "../../../../fuzz/fuzz_targets/client_hello.rs";
    config at "../../../../fuzz/fuzz_targets/config.rs";
    forwarded at "../../../../fuzz/fuzz_targets/forwarded.rs";
    h2_connection at "../../../../fuzz/fuzz_targets/h2_connection.rs";
    head at "../../../../fuzz/fuzz_targets/head.rs";
    hpack at "../../../../fuzz/fuzz_targets/hpack.rs";
    http1_guard at "../../../../fuzz/fuzz_targets/http1_guard.rs";
    import at "../../../../fuzz/fuzz_targets/import.rs";
    log_line at "../../../../fuzz/fuzz_targets/log_line.rs";
    path at "../../../../fuzz/fuzz_targets/path.rs";
    postgres at "../../../../fuzz/fuzz_targets/postgres.rs";
    protected_names at "../../../../fuzz/fuzz_targets/protected_names.rs";
    proxy_header at "../../../../fuzz/fuzz_targets/proxy_header.rs";
    record_open at "../../../../fuzz/fuzz_targets/record_open.rs";
    request_path at "../../../../fuzz/fuzz_targets/request_path.rs";
    response_head at "../../../../fuzz/fuzz_targets/response_head.rs";
    target at "../../../../fuzz/fuzz_targets/target.rs";
}
