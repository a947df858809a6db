//! End to end: the real binary, real clients, real applications. One module per matter.

mod a_gibibyte_goes_both_ways;
mod bad_certificates_are_told;
mod bad_input_harms_nobody;
mod browser;
mod cli;
mod clients_leave_early;
mod clients_show_certificates;
mod conversation;
mod crowd;
mod curl_reaches_an_application;
mod descriptors_run_out;
mod documents;
mod duplex;
mod figures;
mod half_closes_pass_through;
#[allow(dead_code)]
mod house;
mod idle_connections_cost_little;
mod limits_have_names;
mod local_ca_stays_private;
mod metrics_are_a_page;
mod names_choose_certificates;
mod offramp;
mod openssl;
mod openssl_resumes_sessions;
mod openssl_speaks_every_suite;
mod openssl_updates_keys;
mod protocols_choose_routes;
mod proxy_headers_tell_servers;
mod redis_speaks_through;
mod reload_loses_no_request;
mod servers_share_and_stand_in;
mod serving;
mod stopping_finishes_what_is_open;
mod the_record_layer_is_as_strict_as_rustls;
mod workers_share_the_load;
