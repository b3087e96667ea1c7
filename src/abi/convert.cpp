// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "abi/convert.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "abi/checks.hpp"
#include "abi/constants.hpp"
#include "abi/status.hpp"

namespace farandole::abi {
namespace {

constexpr int kSizeShiftMax = 16;  // as the coordinator's

Result<Message> read_message(Checks checks, const farandole_message* message, std::size_t stride) {
  if (message->struct_size != stride) {
    checks.wrong("struct_size", std::to_string(message->struct_size),
                 std::to_string(stride) + ", as of the first message");
    return *checks.first();
  }
  const farandole_message given = checks.read(message, kMessageSizeMin);
  checks.constant("kind", given.kind, FARANDOLE_RECEIVE);
  checks.constant("dtype", given.dtype, kDTypeCount - 1);
  checks.reserved(given.reserved);
  if (checks.first()) return *checks.first();
  return Message{static_cast<Message::Kind>(given.kind), given.data, Count{given.count},
                 static_cast<DType>(given.dtype), Rank{given.peer}};
}

}  // namespace

Result<void> read_call(const char* call, const farandole_arguments* arguments,
                       const farandole_options* options, CollectiveCall& target) {
  Checks checks(call, "arguments");
  const farandole_arguments given = checks.read(arguments, kArgumentsSizeMin);
  const bool by_rank = given.by_rank != 0;
  checks.constant("collective", given.collective, kCollectiveCount - 1);
  checks.constant("dtype", given.dtype, kDTypeCount - 1);
  checks.constant("reduction", given.reduction, kReductionCount - 1);
  checks.flag("by_rank", given.by_rank);
  checks.reserved(given.reserved);
  checks.counts("in_counts", given.in_counts, given.in_counts_length, by_rank);
  checks.counts("out_counts", given.out_counts, given.out_counts_length, by_rank);
  if (checks.first()) return *checks.first();
  target.arguments = {static_cast<Collective>(given.collective),
                      given.in,
                      given.out,
                      Count{given.count},
                      static_cast<DType>(given.dtype),
                      static_cast<Reduction>(given.reduction),
                      Rank{given.root},
                      by_rank,
                      {given.in_counts, given.in_counts_length},
                      {given.out_counts, given.out_counts_length}};
  if (target.arguments.reduction == Reduction::kPremultipliedSum) {
    target.options.factor = given.factor;
  }
  return read_options(call, options, target.options);
}

Result<void> read_options(const char* call, const farandole_options* options, CallOptions& target) {
  if (options == nullptr) return {};
  Checks checks(call, "options");
  const farandole_options given = checks.read(options, kOptionsSizeMin);
  checks.stream(given.stream);
  checks.flag("caller_waits", given.caller_waits);
  checks.flag("deterministic", given.deterministic);
  checks.range("size_shift", given.size_shift, -kSizeShiftMax, kSizeShiftMax);
  checks.reserved(given.reserved);
  if (checks.first()) return *checks.first();
  if (given.algorithm != nullptr) target.algorithm = given.algorithm;
  if (given.name != nullptr) target.name = given.name;
  target.background = given.caller_waits == 0;
  target.deterministic = given.deterministic == 1;
  target.size_shift = given.size_shift;
  return {};
}

Result<std::vector<Message>> read_messages(const char* call, const farandole_message* messages,
                                           std::size_t count) {
  std::vector<Message> read;
  if (count == 0) return read;
  if (messages == nullptr) {
    return wrong_argument(call, "messages", "null", "a list of " + std::to_string(count));
  }
  const std::size_t stride = messages->struct_size;
  for (std::size_t i = 0; i < count; ++i) {
    const auto* const at = reinterpret_cast<const std::byte*>(messages) + i * stride;
    auto message = read_message(Checks(call, "messages[" + std::to_string(i) + "]"),
                                reinterpret_cast<const farandole_message*>(at), stride);
    if (!message) return message.error();
    read.push_back(*message);
  }
  return read;
}

Result<void> write_ranks(const char* call, farandole_ranks ranks, farandole_ranks* target) {
  Checks checks(call, "ranks");
  if (target == nullptr) return wrong_argument(call, "ranks", "null", "a pointer to a struct");
  checks.struct_size(target->struct_size, kRanksSizeMin);
  if (checks.first()) return *checks.first();
  ranks.struct_size = target->struct_size;
  std::memcpy(target, &ranks, std::min(target->struct_size, sizeof(ranks)));
  return {};
}

}  // namespace farandole::abi
