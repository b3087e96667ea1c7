// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <deque>
#include <set>
#include <utility>

#include "device/registry.hpp"
#include "engine/batch.hpp"
#include "farandole/farandole.hpp"
#include "frontend/device_call.hpp"
#include "frontend/plan.hpp"
#include "frontend/signature.hpp"

namespace farandole {
namespace {

bool sends(const Message& message) {
  return message.kind == Message::Kind::kSend;
}

std::string caller_of(std::span<const Message> messages) {
  if (messages.size() != 1) return "batch";
  return sends(messages[0]) ? "send" : "recv";
}

Result<void> check_message(const Message& message, const std::string& caller, int size) {
  if (message.peer.value() < 0 || message.peer.value() >= size) {
    return bad_argument(caller, sends(message) ? "dest" : "source",
                        std::to_string(message.peer.value()),
                        "a rank from 0 to " + std::to_string(size - 1));
  }
  if (message.count.value() > kCountMax) {
    return bad_argument(caller, "count", std::to_string(message.count.value()),
                        "at most 2^46 elements");
  }
  if (message.count.value() > 0 && message.data == nullptr) {
    return bad_argument(caller, "data", "null", "a buffer");
  }
  return {};
}

/// Pairs the messages that this rank sends to itself, in their order.
Result<std::vector<CopySpec>> pair_own(std::span<const Message> messages, Rank self,
                                       const std::string& caller) {
  std::deque<Message> sent;
  for (const Message& message : messages) {
    if (message.peer == self && sends(message)) sent.push_back(message);
  }
  const auto unmatched = [&](const char* argument) {
    return bad_argument(caller, argument, "this rank itself, without its counterpart",
                        "a send and a receive in one batch, or another rank");
  };
  std::vector<CopySpec> copies;
  for (const Message& message : messages) {
    if (message.peer != self || sends(message)) continue;
    if (sent.empty()) return unmatched("source");
    const Message& from = sent.front();
    if (!(signature_of(from) == signature_of(message))) {
      return Error{ErrorKind::kMismatch, caller + ": this rank sends itself " +
                                             describe(signature_of(from)) + " and expects " +
                                             describe(signature_of(message)) + "."};
    }
    copies.push_back({static_cast<std::byte*>(message.data),
                      static_cast<const std::byte*>(from.data),
                      message.count * size_of(message.dtype)});
    sent.pop_front();
  }
  if (!sent.empty()) return unmatched("dest");
  return copies;
}

/// Gives these messages the next numbers; both ends count alike. The caller holds `messages_mutex`
/// until the batch is submitted, so that the numbers follow the order of submission.
void number(std::vector<MessageSpec>& messages, CommunicatorState& state) {
  for (MessageSpec& message : messages) {
    FinalState::Messages& so_far = state.messages[message.peer.value()];
    message.number = message.sends ? so_far.sent++ : so_far.received++;
  }
}

/// The device on whose streams valid messages go; null for memory of the host.
Result<std::shared_ptr<StreamDevice>> device_of(std::span<const Message> messages,
                                                const std::string& caller, int size) {
  if (!DeviceRegistry::any_streams()) return std::shared_ptr<StreamDevice>();
  for (const Message& message : messages) {
    if (auto valid = check_message(message, caller, size); !valid) return valid.error();
  }
  return stream_device_of(messages);
}

}  // namespace

Result<Request> Communicator::start(std::span<const Message> messages, const CallOptions& options) {
  CommunicatorState& state = *state_;
  const Group& group = *state.group;
  const std::string caller = caller_of(messages);
  if (!is_open(state)) return closed_error(state, caller);
  auto device = device_of(messages, caller, group.size());
  if (!device) return device.error();
  if (*device != nullptr) {
    auto run = start_on_device(messages, options, state_, *device, false);
    return run ? Result<Request>(Request(*std::move(run))) : run.error();
  }
  BatchSpec spec;
  std::set<std::int64_t> peers;
  for (const Message& message : messages) {
    if (auto valid = check_message(message, caller, group.size()); !valid) return valid.error();
    if (message.peer == group.self) continue;
    peers.insert(message.peer.value());
    spec.messages.push_back({sends(message), message.peer, static_cast<std::byte*>(message.data),
                             message.count * size_of(message.dtype), 0, signature_of(message)});
  }
  auto copies = pair_own(messages, group.self, caller);
  if (!copies) return copies.error();
  const std::vector<std::int64_t> once(peers.begin(), peers.end());
  const auto start_timeout = state.context->environment.job.start_timeout;
  if (auto met = connect(group, state.context->membership, start_timeout, once); !met)
    return met.error();
  spec.copies = *std::move(copies);
  spec.terms = terms_of(state, options.name, options.gate);
  const std::lock_guard lock(state.messages_mutex);
  number(spec.messages, state);
  auto operation = std::make_shared<BatchOperation>(std::move(spec));
  state.context->fabric.engine->submit(operation, options.background);
  return Request(std::move(operation), state.context);
}

Result<void> Communicator::batch(std::span<const Message> messages, const CallOptions& options) {
  auto device = device_of(messages, caller_of(messages), state_->group->size());
  if (!device) return device.error();
  if (*device != nullptr) {
    if (!is_open(*state_)) return closed_error(*state_, caller_of(messages));
    auto run = start_on_device(messages, options, state_, *device, true);
    return run ? Result<void>() : run.error();
  }
  CallOptions at_once = options;
  at_once.background = false;
  auto request = start(messages, at_once);
  return request ? request->wait() : request.error();
}

Result<void> Communicator::send(const void* data, Count count, DType dtype, Rank dest,
                                const CallOptions& options) {
  return batch(std::array{Message::send(data, count, dtype, dest)}, options);
}

Result<void> Communicator::recv(void* data, Count count, DType dtype, Rank source,
                                const CallOptions& options) {
  return batch(std::array{Message::receive(data, count, dtype, source)}, options);
}

}  // namespace farandole
