// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "coordinator/messages.hpp"

#include <algorithm>
#include <bit>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "bootstrap/wire.hpp"

namespace farandole::coordinator {
namespace {

// Fewest bytes that one element of a list takes. A count of more elements than the rest of the
// message can hold is refused before anything is allocated.
constexpr std::size_t kTextBytesMin = 4;
constexpr std::size_t kRunBytes = 8;
constexpr std::size_t kDimensionBytes = 8;
constexpr std::size_t kRequestBytesMin = 49;

std::uint32_t count_of(std::size_t size) {
  return static_cast<std::uint32_t>(size);
}

void write(Writer& writer, const TensorRequest& request) {
  writer.text(request.name).u8(static_cast<std::uint8_t>(request.collective));
  writer.u8(static_cast<std::uint8_t>(request.reduction)).flag(request.adasum);
  writer.u8(static_cast<std::uint8_t>(request.dtype)).u32(count_of(request.shape.size()));
  for (const std::int64_t size : request.shape) writer.i64(size);
  writer.i32(request.root).u64(std::bit_cast<std::uint64_t>(request.prescale));
  writer.u64(std::bit_cast<std::uint64_t>(request.postscale));
  writer.flag(request.leaves_out_joined)
      .i32(request.device)
      .text(request.group)
      .u32(request.group_size);
}

void write(Writer& writer, const RankSet& set) {
  writer.u32(count_of(set.runs().size()));
  for (const RankSet::Run& run : set.runs()) writer.i32(run.first).i32(run.last);
}

void write(Writer& writer, const std::vector<std::string>& texts) {
  writer.u32(count_of(texts.size()));
  for (const std::string& text : texts) writer.text(text);
}

/// Reads the parts of these messages.
class Parser : public Reader {
 public:
  using Reader::Reader;
  SharedRequest request();
  RankSet ranks();
  std::vector<std::string> names();
};

SharedRequest Parser::request() {
  TensorRequest request;
  request.name = text();
  request.collective = static_cast<Collective>(below(kCollectiveCount));
  request.reduction = static_cast<Reduction>(below(kReductionCount));
  request.adasum = flag();
  request.dtype = static_cast<DType>(below(kDTypeCount));
  request.shape.resize(count(kDimensionBytes));
  for (std::int64_t& size : request.shape) {
    size = i64();
    require(size >= 0);
  }
  request.root = i32();
  request.prescale = std::bit_cast<double>(u64());
  request.postscale = std::bit_cast<double>(u64());
  request.leaves_out_joined = flag();
  request.device = i32();
  request.group = text();
  request.group_size = u32();
  return std::make_shared<const TensorRequest>(std::move(request));
}

RankSet Parser::ranks() {
  RankSet set;
  std::int64_t before = -2;
  for (std::size_t left = count(kRunBytes); left > 0 && ok(); --left) {
    const std::int32_t first = rank();
    const std::int32_t last = rank();
    require(before + 1 < first && first <= last);
    if (ok()) set.add(RankSet::Run{first, last});
    before = last;
  }
  return set;
}

std::vector<std::string> Parser::names() {
  std::vector<std::string> names;
  for (std::size_t left = count(kTextBytesMin); left > 0 && ok(); --left) {
    names.push_back(text());
    require(names.size() < 2 || names[names.size() - 2] < names.back());
  }
  return names;
}

Error malformed(const std::string& what) {
  return Error{ErrorKind::kInternal, "a rank sent the coordinator a malformed " + what + "."};
}

}  // namespace

void merge(Report::Item& into, Report::Item& other) {
  if (other.ranks.front() < into.ranks.front()) std::swap(into, other);
  into.ranks.add(other.ranks);
  std::optional<Report::Disagreement> second = other.disagreement;
  if (!agree(*into.request, *other.request)) second = {other.ranks.front(), other.request};
  if (second && (!into.disagreement || second->rank < into.disagreement->rank)) {
    into.disagreement = std::move(second);
  }
}

void merge(Report& into, Report&& other) {
  std::unordered_map<std::string_view, std::size_t> places;  // filled when orders differ
  std::size_t next = 0;                                      // ranks mostly ask in one order
  for (Report::Item& item : other.items) {
    const std::string& name = item.request->name;
    if (next >= into.items.size() || into.items[next].request->name != name) {
      for (std::size_t i = places.size(); i < into.items.size(); ++i) {
        places.emplace(into.items[i].request->name, i);
      }
      const auto place = places.find(name);
      next = place == places.end() ? into.items.size() : place->second;
    }
    if (next < into.items.size()) {
      merge(into.items[next], item);
    } else {
      into.items.push_back(std::move(item));
    }
    ++next;
  }
  std::vector<std::string> invalid;
  std::set_union(into.invalid.begin(), into.invalid.end(), other.invalid.begin(),
                 other.invalid.end(), std::back_inserter(invalid));
  into.invalid = std::move(invalid);
  into.joined.add(other.joined);
}

std::string encode(const Report& report) {
  Writer writer;
  writer.u32(count_of(report.items.size()));
  for (const Report::Item& item : report.items) {
    write(writer, *item.request);
    write(writer, item.ranks);
    writer.flag(item.disagreement.has_value());
    if (!item.disagreement) continue;
    writer.i32(item.disagreement->rank);
    write(writer, *item.disagreement->request);
  }
  write(writer, report.invalid);
  write(writer, report.joined);
  return std::move(writer).bytes();
}

Result<Report> decode_report(std::string_view bytes) {
  Parser parser(bytes);
  Report report;
  std::unordered_set<std::string_view> names;
  for (std::size_t left = parser.count(kRequestBytesMin); left > 0 && parser.ok(); --left) {
    Report::Item item{parser.request(), parser.ranks(), {}};
    if (parser.flag()) {
      const std::int32_t rank = parser.rank();
      item.disagreement = {rank, parser.request()};
    }
    parser.require(!item.ranks.empty() && names.insert(item.request->name).second);
    report.items.push_back(std::move(item));
  }
  report.invalid = parser.names();
  report.joined = parser.ranks();
  if (!parser.complete()) return malformed("report");
  return report;
}

std::string encode(const Decision& decision) {
  Writer writer;
  write(writer, decision.invalid);
  write(writer, decision.joined);
  writer.u32(count_of(decision.responses.size()));
  for (const Response& response : decision.responses) {
    write(writer, *response.request);
    writer.text(response.error);
    write(writer, response.late);
    writer.flag(response.kind == ErrorKind::kTimedOut);
  }
  writer.flag(decision.all_joined.has_value());
  if (decision.all_joined) writer.i32(*decision.all_joined);
  writer.flag(decision.parameters.has_value());
  if (decision.parameters) {
    writer.u64(decision.parameters->cycle_time_ns);
    writer.u64(decision.parameters->fusion_threshold_bytes);
    writer.i32(decision.parameters->size_shift);
  }
  return std::move(writer).bytes();
}

Result<Decision> decode_decision(std::string_view bytes) {
  Parser parser(bytes);
  Decision decision;
  decision.invalid = parser.names();
  decision.joined = parser.ranks();
  for (std::size_t left = parser.count(kRequestBytesMin); left > 0 && parser.ok(); --left) {
    Response response;
    response.request = parser.request();
    response.error = parser.text();
    response.late = parser.ranks();
    response.kind = parser.flag() ? ErrorKind::kTimedOut : ErrorKind::kMismatch;
    decision.responses.push_back(std::move(response));
  }
  if (parser.flag()) decision.all_joined = parser.rank();
  if (parser.flag()) {
    decision.parameters.emplace();
    decision.parameters->cycle_time_ns = parser.u64();
    decision.parameters->fusion_threshold_bytes = parser.u64();
    decision.parameters->size_shift = parser.i32();
  }
  if (!parser.complete()) return malformed("decision");
  return decision;
}

}  // namespace farandole::coordinator
