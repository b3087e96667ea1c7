// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "abi/convert.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "abi/constants.hpp"
#include "abi/status.hpp"

namespace farandole::abi {
namespace {

constexpr int kSizeShiftMax = 16;  // as the coordinator's

/// Checks the fields of one struct of the caller's, which messages call "arguments" or
/// "messages[2]", and keeps what is wrong first.
class Checks {
 public:
  Checks(const char* call, std::string argument) : call_(call), argument_(std::move(argument)) {}

  /// A constant from 0 to `last`.
  void constant(const char* field, std::int32_t given, std::int32_t last) {
    range(field, given, 0, last, "a constant from ");
  }
  void range(const char* field, std::int32_t given, std::int32_t least, std::int32_t most,
             const char* allowed = "") {
    if (given >= least && given <= most) return;
    wrong(field, std::to_string(given),
          allowed + std::to_string(least) + " to " + std::to_string(most));
  }
  void flag(const char* field, std::int32_t given) {
    if (given != 0 && given != 1) wrong(field, std::to_string(given), "0 or 1");
  }
  void reserved(std::int32_t given) {
    if (given != 0) wrong("reserved", std::to_string(given), "0");
  }
  /// A list of counts, which only calls with by_rank have.
  void counts(const char* field, const std::size_t* counts, std::size_t length, bool by_rank) {
    if (!by_rank && (counts != nullptr || length != 0)) {
      wrong(field, "given", "null and of length 0, unless by_rank is 1");
    } else if (counts == nullptr && length != 0) {
      wrong(field, "null", "a list of " + std::to_string(length) + " counts");
    }
  }
  void struct_size(std::size_t given, std::size_t least) {
    if (given >= least && given <= kStructSizeMax && given % alignof(std::size_t) == 0) return;
    wrong("struct_size", std::to_string(given),
          "sizeof of the struct, from " + std::to_string(least) + " to " +
              std::to_string(kStructSizeMax) + " bytes");
  }
  void stream(const void* given) {
    if (given == nullptr || first_) return;
    wrong("stream", "given", "null, since this library moves no memory of devices");
    first_->kind = ErrorKind::kUnsupported;
  }
  /// The bytes of a struct behind those that the library knows.
  void newer_fields(std::span<const unsigned char> bytes) {
    if (first_ || std::ranges::all_of(bytes, [](unsigned char byte) { return byte == 0; })) return;
    first_ = Error{ErrorKind::kUnsupported,
                   std::string(call_) + ": argument '" + argument_ +
                       "' sets a field that this library, which is older than its caller, does "
                       "not have."};
  }
  void wrong(const char* field, const std::string& given, const std::string& allowed) {
    if (!first_) first_ = wrong_argument(call_, argument_ + "." + field, given, allowed);
  }

  /// A copy of the fields that the library knows and the caller has; others are zero.
  template <class Struct>
  Struct read(const Struct* given, std::size_t size_min) {
    Struct known{};
    if (given == nullptr) {
      first_ = wrong_argument(call_, argument_, "null", "a pointer to a struct");
      return known;
    }
    const std::size_t size = given->struct_size;
    struct_size(size, size_min);
    if (first_) return known;
    std::memcpy(&known, given, std::min(size, sizeof(Struct)));
    if (size > sizeof(Struct)) {
      const auto* const bytes = reinterpret_cast<const unsigned char*>(given);
      newer_fields({bytes + sizeof(Struct), size - sizeof(Struct)});
    }
    return known;
  }

  const std::optional<Error>& first() const { return first_; }

 private:
  const char* call_;
  std::string argument_;
  std::optional<Error> first_;
};

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
