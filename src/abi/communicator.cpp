// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "abi/convert.hpp"
#include "abi/handles.hpp"

using namespace farandole;
using namespace farandole::abi;

namespace {

Result<std::optional<Communicator>> optional(Result<Communicator> made) {
  if (!made) return made.error();
  return std::optional(*std::move(made));
}

/// Derives a communicator from `parent`; `make` returns none if this rank is not in it.
template <class Make>
farandole_status derive(const char* call, farandole_communicator* parent,
                        farandole_communicator** target, Make&& make) {
  return guarded(call, [&]() -> Result<void> {
    if (auto valid = check_target(call, "made", target); !valid) return valid;
    if (auto valid = check_handle(call, "parent", parent); !valid) return valid;
    Result<std::optional<Communicator>> made = make(parent->value);
    if (!made) return made.error();
    if (*made) make_handle(target, **std::move(made));
    return {};
  });
}

Result<std::vector<Rank>> read_ranks(const char* call, const Communicator& of,
                                     const std::int32_t* ranks, std::size_t count) {
  if (ranks == nullptr && count > 0) {
    return wrong_argument(call, "ranks", "null", "a list of " + std::to_string(count));
  }
  if (count > static_cast<std::size_t>(of.size())) {
    return wrong_argument(call, "rank_count", std::to_string(count),
                          "at most the size of the parent, " + std::to_string(of.size()));
  }
  std::vector<Rank> list;
  for (std::size_t i = 0; i < count; ++i) list.push_back(Rank{ranks[i]});
  return list;
}

/// Calls `start` and gives the caller a handle of the request that it returns.
template <class Start>
farandole_status begin(const char* call, farandole_communicator* communicator,
                       farandole_request** target, Start&& start) {
  return guarded(call, [&]() -> Result<void> {
    if (auto valid = check_target(call, "request", target); !valid) return valid;
    if (auto valid = check_handle(call, "communicator", communicator); !valid) return valid;
    Result<Request> started = start(communicator->value);
    if (!started) return started.error();
    make_handle(target, *std::move(started));
    return {};
  });
}

}  // namespace

farandole_status farandole_split(farandole_communicator* parent, const int64_t* color, int64_t key,
                                 farandole_communicator** made) {
  return derive(__func__, parent, made, [&](Communicator& of) {
    return of.split(color != nullptr ? std::optional(*color) : std::nullopt, key);
  });
}

farandole_status farandole_group(farandole_communicator* parent, const int32_t* ranks,
                                 size_t rank_count, farandole_communicator** made) {
  const char* const call = __func__;
  return derive(call, parent, made, [&](Communicator& of) -> Result<std::optional<Communicator>> {
    auto list = read_ranks(call, of, ranks, rank_count);
    if (!list) return list.error();
    return of.group(*list);
  });
}

farandole_status farandole_create_group(farandole_communicator* parent, const int32_t* ranks,
                                        size_t rank_count, int32_t tag, int32_t timeout_ms,
                                        farandole_communicator** made) {
  const char* const call = __func__;
  return derive(call, parent, made, [&](Communicator& of) -> Result<std::optional<Communicator>> {
    auto list = read_ranks(call, of, ranks, rank_count);
    if (!list) return list.error();
    if (timeout_ms < 0) {
      return wrong_argument(call, "timeout_ms", std::to_string(timeout_ms), "0 or more");
    }
    std::optional<std::chrono::milliseconds> timeout;
    if (timeout_ms > 0) timeout = std::chrono::milliseconds(timeout_ms);
    return optional(of.create_group(*list, tag, timeout));
  });
}

farandole_status farandole_node(farandole_communicator* parent, farandole_communicator** made) {
  return derive(__func__, parent, made, [](Communicator& of) { return optional(of.node()); });
}

farandole_status farandole_across(farandole_communicator* parent, farandole_communicator** made) {
  return derive(__func__, parent, made, [](Communicator& of) { return optional(of.across()); });
}

farandole_status farandole_communicator_rank(const farandole_communicator* communicator,
                                             int32_t* rank, int32_t* size) {
  const char* const call = __func__;
  return guarded(call, [&]() -> Result<void> {
    if (auto valid = check_handle(call, "communicator", communicator); !valid) return valid;
    if (rank != nullptr) *rank = communicator->value.rank().value();
    if (size != nullptr) *size = communicator->value.size();
    return {};
  });
}

farandole_status farandole_world_ranks(const farandole_communicator* communicator,
                                       int32_t* world_ranks, size_t length) {
  const char* const call = __func__;
  return guarded(call, [&]() -> Result<void> {
    if (auto valid = check_handle(call, "communicator", communicator); !valid) return valid;
    const std::vector<Rank>& ranks = communicator->value.world_ranks();
    if (world_ranks == nullptr) {
      return wrong_argument(call, "world_ranks", "null", "where to write the ranks");
    }
    if (length != ranks.size()) {
      return wrong_argument(call, "length", std::to_string(length),
                            "the size of the communicator, " + std::to_string(ranks.size()));
    }
    std::ranges::transform(ranks, world_ranks, &Rank::value);
    return {};
  });
}

farandole_status farandole_abort_communicator(farandole_communicator* communicator,
                                              const char* reason) {
  const char* const call = __func__;
  return guarded(call, [&]() -> Result<void> {
    if (auto valid = check_handle(call, "communicator", communicator); !valid) return valid;
    return communicator->value.abort(reason != nullptr ? reason : "no reason was given");
  });
}

farandole_status farandole_communicator_release(farandole_communicator* communicator) {
  return release(__func__, "communicator", communicator);
}

farandole_status farandole_run(farandole_communicator* communicator,
                               const farandole_arguments* arguments,
                               const farandole_options* options) {
  const char* const call = __func__;
  return guarded(call, [&]() -> Result<void> {
    if (auto valid = check_handle(call, "communicator", communicator); !valid) return valid;
    CollectiveCall read;
    if (auto valid = read_call(call, arguments, options, read); !valid) return valid;
    return communicator->value.run(read.arguments, read.options);
  });
}

farandole_status farandole_start(farandole_communicator* communicator,
                                 const farandole_arguments* arguments,
                                 const farandole_options* options, farandole_request** request) {
  const char* const call = __func__;
  return begin(call, communicator, request, [&](Communicator& of) -> Result<Request> {
    CollectiveCall read;
    if (auto valid = read_call(call, arguments, options, read); !valid) return valid.error();
    return of.start(read.arguments, read.options);
  });
}

farandole_status farandole_run_messages(farandole_communicator* communicator,
                                        const farandole_message* messages, size_t message_count,
                                        const farandole_options* options) {
  const char* const call = __func__;
  return guarded(call, [&]() -> Result<void> {
    if (auto valid = check_handle(call, "communicator", communicator); !valid) return valid;
    auto read = read_messages(call, messages, message_count);
    if (!read) return read.error();
    CallOptions said;
    if (auto valid = read_options(call, options, said); !valid) return valid;
    return communicator->value.batch(*read, said);
  });
}

farandole_status farandole_start_messages(farandole_communicator* communicator,
                                          const farandole_message* messages, size_t message_count,
                                          const farandole_options* options,
                                          farandole_request** request) {
  const char* const call = __func__;
  return begin(call, communicator, request, [&](Communicator& of) -> Result<Request> {
    auto read = read_messages(call, messages, message_count);
    if (!read) return read.error();
    CallOptions said;
    if (auto valid = read_options(call, options, said); !valid) return valid.error();
    return of.start(*read, said);
  });
}
