// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "coordination/network.hpp"

#include "base/clock.hpp"

namespace farandole {
namespace {

// How often a wait checks `stopping`, which is rarely set.
constexpr auto kSlice = std::chrono::milliseconds(50);
// Reports are lists of names; a larger message cannot be one.
constexpr std::uint64_t kMessageBytesMax = std::uint64_t{1} << 30;

}  // namespace

Result<void> CommunicatorNetwork::all_and(std::span<std::uint64_t> words) {
  const CallOptions options{
      .algorithm = "recursive_doubling", .name = "coordinator's cycle", .background = false};
  auto request =
      communicator_.start(Collective::kAllreduce, words.data(), words.data(), Count{words.size()},
                          DType::kUInt64, Reduction::kBitwiseAnd, Rank{0}, options);
  if (!request) return request.error();
  Clock::time_point called = Clock::now();
  for (;;) {
    auto ended = request->wait_for(kSlice);
    if (!ended) return ended.error();
    if (*ended) return {};
    if (stopping_) request->abort("the coordinator was closed while requests were open");
    if (patience_.count() > 0 && Clock::now() - called >= patience_) {
      call_idle_();
      called = Clock::now();
    }
  }
}

Result<void> CommunicatorNetwork::send(std::int32_t rank, std::string_view message) {
  const CallOptions options{.name = "coordinator's report"};
  const std::uint64_t size = message.size();
  auto told = communicator_.send(&size, Count{1}, DType::kUInt64, Rank{rank}, options);
  if (!told) return told;
  return communicator_.send(message.data(), Count{message.size()}, DType::kUInt8, Rank{rank},
                            options);
}

Result<std::string> CommunicatorNetwork::receive(std::int32_t rank) {
  const CallOptions options{.name = "coordinator's report"};
  std::uint64_t size = 0;
  auto told = communicator_.recv(&size, Count{1}, DType::kUInt64, Rank{rank}, options);
  if (!told) return told.error();
  if (size > kMessageBytesMax) {
    return Error{ErrorKind::kInternal, "coordinator: rank " + std::to_string(rank) +
                                           " announced a report of " + std::to_string(size) +
                                           " bytes."};
  }
  std::string message(size, '\0');
  auto came = communicator_.recv(message.data(), Count{size}, DType::kUInt8, Rank{rank}, options);
  if (!came) return came.error();
  return message;
}

}  // namespace farandole
