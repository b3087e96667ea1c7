// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cstdint>
#include <string>

#include "abi/handles.hpp"

using namespace farandole;
using namespace farandole::abi;

farandole_status farandole_wait(farandole_request* request) {
  const char* const call = __func__;
  return guarded(call, [&]() -> Result<void> {
    if (auto valid = check_handle(call, "request", request); !valid) return valid;
    return request->value.wait();
  });
}

farandole_status farandole_wait_for(farandole_request* request, int32_t timeout_ms, int32_t* done) {
  const char* const call = __func__;
  return guarded(call, [&]() -> Result<void> {
    if (auto valid = check_target(call, "done", done); !valid) return valid;
    if (auto valid = check_handle(call, "request", request); !valid) return valid;
    if (timeout_ms < 0) {
      return wrong_argument(call, "timeout_ms", std::to_string(timeout_ms), "0 or more");
    }
    auto ended = request->value.wait_for(std::chrono::milliseconds(timeout_ms));
    if (!ended) return ended.error();
    *done = *ended ? 1 : 0;
    return {};
  });
}

farandole_status farandole_test(farandole_request* request, int32_t* done) {
  const char* const call = __func__;
  return guarded(call, [&]() -> Result<void> {
    if (auto valid = check_target(call, "done", done); !valid) return valid;
    if (auto valid = check_handle(call, "request", request); !valid) return valid;
    auto ended = request->value.test();
    if (!ended) return ended.error();
    *done = *ended ? 1 : 0;
    return {};
  });
}

farandole_status farandole_on_complete(farandole_request* request, farandole_completion* completion,
                                       void* data) {
  const char* const call = __func__;
  return guarded(call, [&]() -> Result<void> {
    if (auto valid = check_handle(call, "request", request); !valid) return valid;
    if (completion == nullptr) return wrong_argument(call, "completion", "null", "a function");
    return request->value.on_complete([completion, data](const Result<void>& outcome) noexcept {
      if (outcome) return completion(data, FARANDOLE_OK, nullptr);
      const farandole_error error = shown(outcome.error());
      completion(data, error.status, &error);
    });
  });
}

farandole_status farandole_abort(farandole_request* request, const char* why) {
  const char* const call = __func__;
  return guarded(call, [&]() -> Result<void> {
    if (auto valid = check_handle(call, "request", request); !valid) return valid;
    request->value.abort(why != nullptr ? why : "aborted by the caller");
    return {};
  });
}

farandole_status farandole_request_release(farandole_request* request) {
  return release(__func__, "request", request);
}
