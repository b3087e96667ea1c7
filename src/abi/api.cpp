// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <string>

#include "abi/status.hpp"
#include "farandole/farandole.h"

namespace {

constexpr farandole_api kApi{
    .struct_size = sizeof(farandole_api),
    .version = FARANDOLE_API_VERSION,
    .reserved = 0,
    .library_version = &farandole_version,
    .last_error = &farandole_last_error,
    .init = &farandole_init,
    .finalize = &farandole_finalize,
    .get_ranks = &farandole_get_ranks,
    .allocate = &farandole_allocate,
    .memory_release = &farandole_memory_release,
    .world = &farandole_world,
    .split = &farandole_split,
    .group = &farandole_group,
    .node = &farandole_node,
    .across = &farandole_across,
    .communicator_rank = &farandole_communicator_rank,
    .world_ranks = &farandole_world_ranks,
    .communicator_release = &farandole_communicator_release,
    .run = &farandole_run,
    .start = &farandole_start,
    .run_messages = &farandole_run_messages,
    .start_messages = &farandole_start_messages,
    .wait = &farandole_wait,
    .wait_for = &farandole_wait_for,
    .test = &farandole_test,
    .abort = &farandole_abort,
    .request_release = &farandole_request_release,
    .on_complete = &farandole_on_complete,
    .abort_communicator = &farandole_abort_communicator,
    .create_group = &farandole_create_group,
    .init_from_job = &farandole_init_from_job,
};

}  // namespace

const char* farandole_version(void) {
  return FARANDOLE_VERSION;
}

const farandole_error* farandole_last_error(void) {
  return farandole::abi::last_error();
}

const farandole_api* farandole_get_api(uint32_t version) {
  if (version == FARANDOLE_API_VERSION) return &kApi;
  (void)farandole::abi::guarded("farandole_get_api", [&]() -> farandole::Result<void> {
    return farandole::abi::wrong_argument("farandole_get_api", "version", std::to_string(version),
                                          std::to_string(FARANDOLE_API_VERSION));
  });
  return nullptr;
}
