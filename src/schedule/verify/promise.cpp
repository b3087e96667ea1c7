// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/verify/promise.hpp"

#include <algorithm>

#include "schedule/verify/symbolic.hpp"

namespace farandole {
namespace {

// Bounds time and memory: a run takes about 0.3 us to write, and 80 bytes if it stays.
constexpr std::int64_t kRunsMax = std::int64_t{1} << 26;

bool only_root_gives(Collective collective) {
  return collective == Collective::kBroadcast || collective == Collective::kScatter;
}
bool only_root_gets(Collective collective) {
  return collective == Collective::kReduce || collective == Collective::kGather;
}

}  // namespace

std::int64_t chunk_of_input(const Schedule& header, std::int64_t rank, std::int64_t index) {
  switch (header.collective) {
    case Collective::kAllgather:
    case Collective::kGather:
      return rank;
    case Collective::kAlltoall:
      return rank * header.rank_count + index;
    default:
      return index;
  }
}

SpanTurns::SpanTurns(const Schedule& header, const Symmetry& symmetry)
    : differ_in_length_(chunks_differ_in_length(header)),
      symmetry_(symmetry),
      shape_(symmetry.of_chunks()) {
  for (const Buffer buffer : {Buffer::kIn, Buffer::kOut, Buffer::kScratch}) {
    const bool whole = chunks_of(header, buffer) == header.chunk_count;
    strides_[static_cast<std::size_t>(buffer)] = buffer == Buffer::kScratch ? symmetry.of_scratch()
                                                 : whole                    ? symmetry.of_chunks()
                                                                            : symmetry.of_nothing();
  }
  of_chunk_.push_back(symmetry.of_chunks());
  if (header.collective != Collective::kAlltoall) return;
  // The data are numbered source * ranks + destination.
  of_chunk_.push_back(symmetry.of_ranks());
  for (std::int64_t& stride : of_chunk_.back()) stride *= header.rank_count;
}

ConcreteSpan SpanTurns::turned(const ConcreteSpan& span, Symmetry::Element element) const {
  ConcreteSpan result = span;
  if (element == 0) return result;
  result.first = symmetry_.turn_span(span.first, span.count, strides_of(span.buffer), element);
  result.shape = span.buffer == Buffer::kScratch
                     ? symmetry_.turn_span(span.shape, span.count, shape_, element)
                     : result.first;
  return result;
}

void SpanTurns::turn(std::vector<Run>& runs, Buffer buffer, Symmetry::Element element) const {
  if (element == 0) return;
  std::vector<Run> pieces;
  const auto by = [&](const Symmetry::Strides& strides, std::int64_t Run::* number,
                      std::int64_t Run::* other) {
    pieces.clear();
    for (const Run& run : runs) {
      symmetry_.turn_run(run.*number, run.count, strides, element,
                         [&](std::int64_t offset, std::int64_t turned, std::int64_t count) {
                           Run piece = run;
                           piece.*number = turned;
                           piece.*other = run.*other + offset;
                           piece.count = count;
                           pieces.push_back(piece);
                         });
    }
    std::swap(runs, pieces);
  };
  by(strides_of(buffer), &Run::at, &Run::chunk);
  for (const Symmetry::Strides& strides : of_chunk_) by(strides, &Run::chunk, &Run::at);
  for (Run& run : runs) run.value.at = symmetry_.sum(run.value.at, element);
}

void SpanTurns::turn(std::vector<Run>& runs, const ConcreteSpan& span,
                     Symmetry::Element element) const {
  if (element == 0) return;
  for (Run& run : runs) run.at += span.first;
  turn(runs, span.buffer, element);
  normalize(runs);
  const std::int64_t first = runs.front().at;
  for (Run& run : runs) run.at -= first;
}

bool SpanTurns::equally_long(const ConcreteSpan& source, Symmetry::Element element,
                             const ConcreteSpan& target) const {
  return source.count == target.count &&
         (!differ_in_length_ || turned(source, element).shape == target.shape);
}

Memories::Memories(const Schedule& header, const Symmetry& symmetry, Aliasing aliasing)
    : header_(header),
      symmetry_(symmetry),
      map_(header, aliasing),
      turns_(header, symmetry),
      values_(symmetry, header.rank_count),
      cells_(static_cast<std::size_t>(symmetry.orbit_count())),
      writes_left_(kRunsMax) {
  place_inputs();
}

void Memories::place_inputs() {
  const std::int64_t chunks = chunks_of(header_, Buffer::kIn);
  for (std::int64_t orbit = 0; orbit < symmetry_.orbit_count(); ++orbit) {
    const std::int64_t rank = symmetry_.representative(orbit);
    if (header_.collective == Collective::kBarrier) {
      Knowledge known(static_cast<std::size_t>(header_.rank_count + 63) / 64);
      known[static_cast<std::size_t>(rank) / 64] = std::uint64_t{1} << (rank % 64);
      knowledge_.push_back(std::move(known));
    }
    const bool gives = rank == header_.root || !only_root_gives(header_.collective);
    if (chunks == 0 || !gives) continue;
    cells_[static_cast<std::size_t>(orbit)].write({map_.of(rank, Buffer::kIn, 0), chunks,
                                                   values_.leaf({orbit, 0}),
                                                   chunk_of_input(header_, rank, 0)});
  }
}

bool Memories::read(std::int64_t orbit, const ConcreteSpan& span, std::vector<Run>& runs) const {
  const std::int64_t first = map_.of(symmetry_.representative(orbit), span.buffer, span.first);
  const bool whole = cells_[static_cast<std::size_t>(orbit)].read(first, span.count, runs);
  for (Run& run : runs) run.at -= first;
  return whole;
}

bool Memories::write(std::int64_t orbit, const ConcreteSpan& span, const std::vector<Run>& runs) {
  const std::int64_t first = map_.of(symmetry_.representative(orbit), span.buffer, span.first);
  for (Run run : runs) {
    run.at += first;
    cells_[static_cast<std::size_t>(orbit)].write(run);
  }
  writes_left_ -= static_cast<std::int64_t>(runs.size());
  return writes_left_ >= 0;
}

void Memories::learn(Knowledge& into, const Knowledge& from, Symmetry::Element turn) const {
  if (turn == 0) {
    for (std::size_t w = 0; w < into.size(); ++w) into[w] |= from[w];
    return;
  }
  const Symmetry::Strides strides = symmetry_.of_ranks();
  for (std::int64_t rank = 0; rank < header_.rank_count; ++rank) {
    if ((from[static_cast<std::size_t>(rank) / 64] >> (rank % 64) & 1) == 0) continue;
    const std::int64_t turned = symmetry_.turn(rank, strides, turn);
    into[static_cast<std::size_t>(turned) / 64] |= std::uint64_t{1} << (turned % 64);
  }
}

std::optional<std::string> Memories::broken_promise(std::int64_t orbit) {
  if (header_.collective != Collective::kBarrier) return wrong_result(orbit);
  const Knowledge& known = knowledge_[static_cast<std::size_t>(orbit)];
  for (std::int64_t other = 0; other < header_.rank_count; ++other) {
    if (known[static_cast<std::size_t>(other) / 64] >> (other % 64) & 1) continue;
    return "leaves the barrier without knowing that rank " + std::to_string(other) + " entered";
  }
  return std::nullopt;
}

std::optional<std::string> Memories::wrong_result(std::int64_t orbit) {
  const std::int64_t rank = symmetry_.representative(orbit);
  if (only_root_gets(header_.collective) && rank != header_.root) return std::nullopt;
  const std::int64_t count = chunks_of(header_, Buffer::kOut);
  if (count == 0) return std::nullopt;
  std::vector<Run> out;
  const bool whole = read(orbit, {Buffer::kOut, 0, count, 0}, out);
  for (const Run& run : out) {
    if (is_promised(run, rank)) continue;
    return "ends with " + text(run) + " in out[" + std::to_string(run.at) + "]";
  }
  if (!whole) {
    const std::int64_t part = out.empty() ? 0 : out.back().at + out.back().count;
    return "ends with nothing defined in out[" + std::to_string(part) + "]";
  }
  if (header_.collective == Collective::kAllreduce && differs_between_ranks(out)) {
    return "ends with another order of operands than rank 0";
  }
  return std::nullopt;
}

// Rank 0 is the first representative that is compared. The other ranks of its orbit hold its values
// turned, so turning must leave these values as they are.
bool Memories::differs_between_ranks(const std::vector<Run>& out) {
  std::vector<Run> mine = out;
  normalize(mine);
  if (!first_out_.empty()) return mine != first_out_;
  first_out_ = mine;
  for (const Symmetry::Element turn : symmetry_.generators()) {
    std::vector<Run> other = mine;
    turns_.turn(other, Buffer::kOut, turn);
    normalize(other);
    if (other != mine) return true;
  }
  return false;
}

bool Memories::is_promised(const Run& run, std::int64_t rank) {
  switch (header_.collective) {
    case Collective::kAllreduce:
    case Collective::kReduce:
      return run.chunk == run.at && values_.complete(run.value);
    case Collective::kReducescatter:
      return run.chunk == rank && values_.complete(run.value);
    case Collective::kAllgather:
    case Collective::kGather:
    case Collective::kBroadcast:
      return run.chunk == run.at;  // one contributor each
    case Collective::kScatter:
      return run.chunk == rank;
    case Collective::kAlltoall:
      return run.count == 1 && run.chunk == run.at * header_.rank_count + rank;
    case Collective::kBarrier:
      break;
  }
  return true;
}

std::string Memories::text(const Run& run) const {
  return "chunk " + std::to_string(run.chunk) + " from " +
         std::to_string(values_.contributions(run.value)) + " rank(s)";
}

}  // namespace farandole
