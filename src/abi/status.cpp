// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "abi/status.hpp"

#include "abi/constants.hpp"

namespace farandole::abi {
namespace {

constexpr farandole_error kNothing{.struct_size = sizeof(farandole_error),
                                   .status = FARANDOLE_OK,
                                   .failed_rank = -1,
                                   .failed_host = "",
                                   .operation = "",
                                   .message = ""};

thread_local Error kept;                       // what `last` points into
thread_local farandole_error last = kNothing;  // of this thread

/// Keeps a static text as the last error, without any allocation.
farandole_status keep_text(const char* text) noexcept {
  last = kNothing;
  last.status = FARANDOLE_INTERNAL;
  last.message = text;
  return FARANDOLE_INTERNAL;
}

}  // namespace

farandole_error shown(const Error& error) noexcept {
  return {.struct_size = sizeof(farandole_error),
          .status = status_of(error.kind),
          .failed_rank = error.culprit ? error.culprit->rank : -1,
          .failed_pid = error.culprit ? error.culprit->pid : 0,
          .failed_host = error.culprit ? error.culprit->host.c_str() : "",
          .operation = error.operation.c_str(),
          .message = error.message.c_str()};
}

farandole_status report(const Error& error) noexcept {
  try {
    kept = error;
  } catch (...) {
    return keep_text("no memory is left, not even for the message of an error.");
  }
  last = shown(kept);
  return last.status;
}

farandole_status report_thrown(const char* call, const char* what) noexcept {
  try {
    const std::string why = what != nullptr ? what : "an unknown exception";
    return report({ErrorKind::kInternal, std::string(call) + ": " + why + "."});
  } catch (...) {
    return keep_text("no memory is left.");
  }
}

const farandole_error* last_error() noexcept {
  return &last;
}

Error wrong_argument(std::string_view call, std::string_view argument, std::string_view given,
                     std::string_view allowed) {
  std::string message(call);
  message.append(": argument '").append(argument).append("' is ").append(given);
  message.append(", allowed is ").append(allowed).append(".");
  return {ErrorKind::kInvalidArgument, std::move(message)};
}

}  // namespace farandole::abi
