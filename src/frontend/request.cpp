// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "farandole/farandole.hpp"
#include "frontend/context_state.hpp"
#include "frontend/device_call.hpp"

namespace farandole {
namespace {

/// False if the operation is still running after `give_up`; the error if it failed.
Result<bool> wait_until(Operation& operation, ContextState& context, Deadline give_up) {
  if (!operation.finished() && !context.environment.origin.here())
    return context.environment.origin.error("wait");
  if (!operation.finished() && !context.fabric.engine->wait(operation, Ticks::now(), give_up)) {
    return false;
  }
  if (!operation.outcome()) return operation.outcome().error();
  return true;
}

}  // namespace

Request::Request(std::shared_ptr<DeviceRun> run) : run_(std::move(run)) {}

Result<void> Request::wait() {
  if (run_ != nullptr) return run_->wait();
  auto ended = wait_until(*operation_, *context_, Deadline::never());
  return ended ? Result<void>() : ended.error();
}

Result<bool> Request::wait_for(std::chrono::milliseconds timeout) {
  if (run_ != nullptr) return run_->wait_for(timeout);
  return wait_until(*operation_, *context_, Deadline::after(timeout));
}

Result<void> Request::order(void* stream) {
  return run_ == nullptr ? wait() : run_->order(stream);
}

Result<bool> Request::test() {
  if (run_ != nullptr) return run_->test();
  if (!operation_->finished()) {
    if (!context_->environment.origin.here()) return context_->environment.origin.error("test");
    return false;
  }
  if (!operation_->outcome()) return operation_->outcome().error();
  return true;
}

Result<void> Request::on_complete(std::function<void(const Result<void>&)> told) {
  if (run_ != nullptr && told) return run_->on_complete(std::move(told));
  if (run_ == nullptr && !context_->environment.origin.here())
    return context_->environment.origin.error("on_complete");
  if (!told) {
    return Error{ErrorKind::kInvalidArgument,
                 "on_complete: argument 'told' is empty, allowed is a function."};
  }
  operation_->on_complete(std::move(told));
  return {};
}

void Request::abort(const std::string& why) {
  if (run_ != nullptr) return run_->abort(why);
  if (!context_->environment.origin.here()) return;
  context_->fabric.engine->abort(Error{ErrorKind::kInternal, why});
}

}  // namespace farandole
