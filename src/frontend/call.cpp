// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "frontend/call.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <span>

namespace farandole {
namespace {

using Counts = std::span<const std::size_t>;

std::size_t total(Counts counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

/// How a collective uses the buffers of this rank: whether `in` and `out` hold one chunk per rank,
/// and whether this rank reads `in` and writes `out` at all, since some belong to the root only.
struct Sides {
  bool in_by_rank = false, out_by_rank = false;
  bool reads = true, writes = true;
};

Sides sides(const Arguments& call, const Group& group) {
  const bool at_root = call.root == group.self;
  switch (call.collective) {
    case Collective::kReducescatter:
      return {.in_by_rank = true};
    case Collective::kScatter:
      return {.in_by_rank = true, .reads = at_root};
    case Collective::kAllgather:
      return {.out_by_rank = true};
    case Collective::kGather:
      return {.out_by_rank = true, .writes = at_root};
    case Collective::kAlltoall:
      return {.in_by_rank = true, .out_by_rank = true};
    case Collective::kBroadcast:
      return {.reads = at_root};
    case Collective::kReduce:
      return {.writes = at_root};
    case Collective::kAllreduce:
      return {};
    case Collective::kBarrier:
      break;
  }
  return {.reads = false, .writes = false};
}

/// Elements before this rank's chunk, and in it.
struct Chunk {
  std::size_t offset, count;
};
Chunk own_chunk(Counts counts, const Group& group) {
  const auto self = static_cast<std::size_t>(group.self.value());
  return {total(counts.first(self)), counts[self]};
}

Result<void> check_counts(const Call& call, const Group& group) {
  const Arguments& arguments = call.arguments;
  const Sides side = sides(arguments, group);
  const struct {
    const char* argument;
    Counts given;
    bool needed;
  } both[] = {{"in_counts", arguments.in_counts, side.in_by_rank && side.reads},
              {"out_counts", arguments.out_counts, side.out_by_rank && side.writes}};
  const auto size = static_cast<std::size_t>(group.size());
  const std::string_view caller = name(arguments.collective);
  if (!side.in_by_rank && !side.out_by_rank) {
    return bad_argument(caller, "by_rank", "true", "false, since no buffer holds a chunk per rank");
  }
  for (const auto& [argument, given, needed] : both) {
    if (!needed) continue;
    if (given.size() != size) {
      return bad_argument(caller, argument, std::to_string(given.size()) + " long",
                          "one count per rank, " + std::to_string(size));
    }
    std::size_t left = kCountMax;
    for (const std::size_t count : given) {
      if (count > left) {
        return bad_argument(caller, argument, "too large in sum",
                            "at most 2^46 elements over all ranks");
      }
      left -= count;
    }
  }
  const auto self = static_cast<std::size_t>(group.self.value());
  if (both[0].needed && both[1].needed && both[0].given[self] != both[1].given[self]) {
    return bad_argument(caller, "out_counts",
                        std::to_string(both[1].given[self]) + " for this rank's own chunk",
                        "what in_counts gives it, " + std::to_string(both[0].given[self]));
  }
  return {};
}

/// The buffers may be apart, or in place as the collective defines it; any other overlap is an
/// error.
Result<void> check_overlap(const Arguments& arguments, const Extent& extents, const Group& group) {
  if (arguments.in == arguments.out && extents.in_place_offset.value() == 0) return {};
  const std::size_t element = size_of(arguments.dtype).value();
  const std::size_t in_bytes = extents.in.value() * element;
  const std::size_t out_bytes = extents.written.value() * element;
  const auto in = reinterpret_cast<std::uintptr_t>(arguments.in);
  const auto out = reinterpret_cast<std::uintptr_t>(arguments.out);
  if (in_bytes == 0 || out_bytes == 0 || out == 0 || in + in_bytes <= out || out + out_bytes <= in)
    return {};
  const std::size_t mine = extents.in_place_offset.value() * element;
  const Sides side = sides(arguments, group);
  const bool in_place = side.in_by_rank && !side.out_by_rank   ? out == in + mine
                        : side.out_by_rank && !side.in_by_rank ? in == out + mine
                                                               : in == out;
  if (in_place) return {};
  return bad_argument(name(arguments.collective), "out", "overlapping 'in' partly",
                      "memory apart from 'in' or exactly its in-place position");
}

}  // namespace

Error bad_argument(std::string_view call, const std::string& argument, const std::string& given,
                   const std::string& allowed) {
  return Error{ErrorKind::kInvalidArgument, std::string(call) + ": argument '" + argument +
                                                "' is " + given + ", allowed is " + allowed + "."};
}

Extent extent(const Arguments& call, const Group& group) {
  const Sides side = sides(call, group);
  const auto size = static_cast<std::size_t>(group.size());
  const auto self = static_cast<std::size_t>(group.self.value());
  const std::size_t one = call.count.value();
  Extent result{.in = Count{side.in_by_rank ? one * size : one},
                .out = Count{side.out_by_rank ? one * size : one},
                .in_place_offset = Count{side.in_by_rank != side.out_by_rank ? one * self : 0}};
  if (call.by_rank) {
    // The buffer with one chunk is as long as this rank's chunk in the other buffer, if the counts
    // of that one are known; else `count` says how long it is.
    const bool in_known = side.in_by_rank && side.reads;
    const bool out_known = side.out_by_rank && side.writes;
    if (in_known) result.in = Count{total(call.in_counts)};
    if (out_known) result.out = Count{total(call.out_counts)};
    if (in_known && !side.out_by_rank) {
      const Chunk own = own_chunk(call.in_counts, group);
      result.out = Count{own.count};
      result.in_place_offset = Count{own.offset};
    }
    if (out_known && !side.in_by_rank) {
      const Chunk own = own_chunk(call.out_counts, group);
      result.in = Count{own.count};
      result.in_place_offset = Count{own.offset};
    }
  }
  if (!side.reads) result.in = Count{0};
  if (!side.writes) result.out = Count{0};
  result.written = call.collective == Collective::kReduce ? call.count : result.out;
  return result;
}

Layouts layouts(const Arguments& call, const Group& group, std::int64_t chunk_count) {
  const Sides side = sides(call, group);
  if (!side.in_by_rank && !side.out_by_rank) {
    const Layout shared = Layout::share(call.count, chunk_count, size_of(call.dtype));
    return {shared, shared, shared};
  }
  if (!call.by_rank) {
    const Layout equal = Layout::repeat(call.count, group.size());
    return {equal, equal, equal};
  }
  const Extent extents = extent(call, group);
  const std::array<std::size_t, 1> in_alone = {extents.in.value()};
  const std::array<std::size_t, 1> out_alone = {extents.out.value()};
  const bool in_known = side.in_by_rank && side.reads;
  const bool out_known = side.out_by_rank && side.writes;
  Layout in = Layout::by_counts(in_known ? call.in_counts : Counts(in_alone));
  Layout out = Layout::by_counts(out_known ? call.out_counts : Counts(out_alone));
  Layout chunks = in_known ? in : out;
  return {std::move(in), std::move(out), std::move(chunks)};
}

Result<void> check_call(const Call& call, const Group& group) {
  const Arguments& arguments = call.arguments;
  if (arguments.collective == Collective::kBarrier) return {};
  const int size = group.size();
  const std::string_view caller = name(arguments.collective);
  if (arguments.root.value() < 0 || arguments.root.value() >= size) {
    return bad_argument(caller, "root", std::to_string(arguments.root.value()),
                        "a rank from 0 to " + std::to_string(size - 1));
  }
  if (arguments.count.value() > kCountMax / static_cast<std::size_t>(size)) {
    return bad_argument(caller, "count", std::to_string(arguments.count.value()),
                        "at most 2^46 elements over all ranks");
  }
  if (arguments.by_rank) {
    if (auto valid = check_counts(call, group); !valid) return valid;
  }
  return check_buffers(arguments, extent(arguments, group), group);
}

Result<void> check_buffers(const Arguments& arguments, const Extent& extents, const Group& group) {
  const auto null = [](const void* data, Count count) {
    return data == nullptr && count.value() > 0;
  };
  const auto missing = [&](const std::string& argument) {
    return bad_argument(name(arguments.collective), argument, "null", "a buffer");
  };
  if (null(arguments.in, extents.in)) return missing("in");
  if (null(arguments.out, extents.out)) return missing("out");
  return check_overlap(arguments, extents, group);
}

}  // namespace farandole
