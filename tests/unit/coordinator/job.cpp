// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "unit/coordinator/job.hpp"

#include <utility>

#include "coordinator/network.hpp"

namespace farandole::coordinator::test {

SharedRequest tensor(std::string name, std::vector<std::int64_t> shape) {
  TensorRequest request;
  request.name = std::move(name);
  request.dtype = DType::kFloat32;
  request.shape = std::move(shape);
  return std::make_shared<const TensorRequest>(std::move(request));
}

std::vector<SharedRequest> group(const std::string& label, const std::vector<std::string>& names) {
  std::vector<SharedRequest> requests;
  for (const std::string& name : names) {
    TensorRequest request = *tensor(name);
    request.group = label;
    request.group_size = static_cast<std::uint32_t>(names.size());
    requests.push_back(std::make_shared<const TensorRequest>(std::move(request)));
  }
  return requests;
}

Job::Job(std::int32_t rank_count, ControllerOptions options) {
  options.rank_count = rank_count;
  for (options.rank = 0; options.rank < rank_count; ++options.rank) {
    ranks_.push_back({Controller(options), {}, {}, {}});
  }
}

void Job::add(std::int32_t rank, std::vector<SharedRequest> requests) {
  Rank& state = ranks_[static_cast<std::size_t>(rank)];
  for (const SharedRequest& request : requests) state.open[request->name] = request->group;
  state.controller.add(std::move(requests), now_);
}

bool Job::cycle(const std::function<void()>& meanwhile) {
  if (!violation_.empty()) return false;
  ++cycles_;
  std::vector<std::uint64_t> bits;
  if (!gather_bits(bits)) return false;
  if (meanwhile) meanwhile();
  for (Rank& rank : ranks_) rank.controller.conclude(bits);
  talked_ = at(0).talks();
  if (meanwhile) meanwhile();
  if (talked_ && !talk()) return false;
  for (Rank& rank : ranks_) collect(rank);
  compare();
  return violation_.empty();
}

bool Job::quiet() {
  for (Rank& rank : ranks_) {
    if (rank.controller.pending()) return false;
  }
  return true;
}

void Job::fail(const std::string& what) {
  if (violation_.empty()) violation_ = "cycle " + std::to_string(cycles_) + ": " + what;
}

bool Job::gather_bits(std::vector<std::uint64_t>& all) {
  for (Rank& rank : ranks_) {
    const std::vector<std::uint64_t> words = rank.controller.propose(now_);
    if (all.empty()) all.assign(words.size(), ~std::uint64_t{0});
    if (words.size() != all.size()) return fail("ranks propose different numbers of words"), false;
    for (std::size_t word = 0; word < all.size(); ++word) all[word] &= words[word];
  }
  return true;
}

bool Job::talk() {
  std::vector<std::string> reports(ranks_.size());
  for (std::int32_t rank = rank_count() - 1; rank >= 0; --rank) {
    Report report = at(rank).report();
    for (const std::int32_t child : Tree::at(rank, rank_count()).children) {
      Result<Report> theirs = decode_report(reports[static_cast<std::size_t>(child)]);
      if (!theirs) return fail(theirs.error().message), false;
      merge(report, *std::move(theirs));
    }
    reports[static_cast<std::size_t>(rank)] = encode(report);
  }
  Result<Report> all = decode_report(reports.front());
  if (!all) return fail(all.error().message), false;
  const std::string message = encode(at(0).decide(*std::move(all), now_));
  for (Rank& rank : ranks_) {
    const Result<Decision> decision = decode_decision(message);
    if (!decision) return fail(decision.error().message), false;
    rank.controller.apply(*decision);
  }
  return true;
}

void Job::collect(Rank& rank) {
  rank.last = rank.controller.ready();
  const std::int32_t self = rank.controller.rank();
  for (const Ready& ready : rank.last) {
    const std::string& name = ready.response.request->name;
    const bool failed = !ready.response.error.empty();
    if (!failed && ready.own == ready.joined->contains(self)) {
      fail("'" + name + "' ran with data of rank " + std::to_string(self) + " and without");
    }
    if (!ready.own) continue;
    if (rank.open.erase(name) == 0) {
      fail("'" + name + "' was answered on rank " + std::to_string(self) + ", who waits for none");
    }
    rank.answers[name].push_back({failed, ready.response.error, *ready.joined});
  }
}

void Job::compare() {
  const Rank& first = ranks_.front();
  const std::optional<std::int32_t> last = ranks_.front().controller.take_all_joined();
  if (last) all_joined_.push_back(*last);
  for (Rank& rank : ranks_) {
    const std::string self = std::to_string(rank.controller.rank());
    if (!ignores_caches_ &&
        rank.controller.cache().fingerprint() != first.controller.cache().fingerprint()) {
      fail("the cache of rank " + self + " differs:\n" + first.controller.cache().fingerprint() +
           "\nand\n" + rank.controller.cache().fingerprint());
    }
    if (&rank != &first && rank.controller.take_all_joined() != last) {
      fail("rank " + self + " has another idea of who joined last");
    }
    bool same = rank.last.size() == first.last.size();
    for (std::size_t i = 0; same && i < first.last.size(); ++i) {
      const Ready& a = first.last[i];
      const Ready& b = rank.last[i];
      same = *a.response.request == *b.response.request && a.response.error == b.response.error &&
             *a.joined == *b.joined;
    }
    if (!same) fail("rank " + self + " starts other operations than rank 0");
  }
}

std::vector<std::string> Job::last() const {
  std::vector<std::string> names;
  for (const Ready& ready : ranks_.front().last) names.push_back(ready.response.request->name);
  return names;
}

const std::vector<Answer>& Job::answers(std::int32_t rank, const std::string& name) const {
  static const std::vector<Answer> none;
  const Rank& state = ranks_[static_cast<std::size_t>(rank)];
  const auto found = state.answers.find(name);
  return found == state.answers.end() ? none : found->second;
}

std::size_t Job::open_count(std::int32_t rank) const {
  return ranks_[static_cast<std::size_t>(rank)].open.size();
}

bool Job::open(std::int32_t rank, const std::string& name) const {
  return ranks_[static_cast<std::size_t>(rank)].open.contains(name);
}

bool Job::label_open(std::int32_t rank, const std::string& label) const {
  for (const auto& [name, group] : ranks_[static_cast<std::size_t>(rank)].open) {
    if (group == label) return true;
  }
  return false;
}

}  // namespace farandole::coordinator::test
