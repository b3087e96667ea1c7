// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/schedule.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "algorithms/registered.hpp"
#include "algorithms/registry.hpp"
#include "bindings.hpp"
#include "schedule/expand.hpp"
#include "schedule/text.hpp"

namespace nb = nanobind;

namespace farandole::bindings {
namespace {

nb::str text(std::string_view view) {
  return nb::str(view.data(), view.size());
}

nb::list algorithm_table() {
  nb::list rows;
  for (const AlgorithmInfo* info : algorithms()) {
    nb::dict row;
    row["collective"] = text(name(info->collective));
    row["name"] = text(info->name);
    row["summary"] = text(info->summary);
    row["cost"] = text(info->cost);
    row["needs"] = text(info->needs);
    row["options"] = text(info->options);
    row["ranks_max"] = nb::str(std::to_string(info->ranks_max).c_str());
    row["source"] = text(info->source);
    rows.append(row);
  }
  return rows;
}

/// The delegates of this process, and what a call on `rank_count` ranks of one host costs.
nb::list delegate_table(std::int64_t rank_count) {
  nb::list rows;
  for (const AlgorithmInfo* info : registered_algorithms()) {
    if (info->delegate == nullptr) continue;
    const DelegatePrice price = info->delegate->price(info->collective, rank_count, rank_count);
    nb::dict row;
    row["collective"] = text(name(info->collective));
    row["name"] = text(info->name);
    row["summary"] = text(info->summary);
    row["seconds"] = price.seconds;
    row["seconds_per_byte"] = price.seconds_per_byte;
    rows.append(row);
  }
  return rows;
}

Schedule build(const std::string& collective, const std::string& algorithm, std::int64_t rank_count,
               std::int64_t root, bool deterministic) {
  const auto parsed = parse_collective(collective);
  if (!parsed) {
    raise({ErrorKind::kInvalidArgument,
           "argument 'collective' is '" + collective + "', allowed is one of COLLECTIVES."});
  }
  if (rank_count < 1 || rank_count > (1 << 20)) {
    raise({ErrorKind::kInvalidArgument, "argument 'rank_count' is " + std::to_string(rank_count) +
                                            ", allowed is 1 to 1048576."});
  }
  if (root < 0 || root >= rank_count) {
    raise({ErrorKind::kInvalidArgument, "argument 'root' is " + std::to_string(root) +
                                            ", allowed is 0 to " + std::to_string(rank_count - 1) +
                                            "."});
  }
  return take(build_schedule(*parsed, algorithm, rank_count, root, deterministic));
}

nb::dict report(const Proof& proof) {
  nb::dict report;
  report["rounds"] = proof.rounds;
  report["transfers"] = proof.transfers;
  report["reductions"] = proof.reductions;
  return report;
}

nb::dict verify_schedule(const Schedule& schedule) {
  Result<VerifiedSchedule> verified = [&] {
    const nb::gil_scoped_release release;
    return verify(schedule);
  }();
  return report(take(std::move(verified)).proof());
}

VerifiedSchedule load(const std::string& path) {
  Result<VerifiedSchedule> loaded = [&] {
    const nb::gil_scoped_release release;
    return load_schedule(path);
  }();
  return take(std::move(loaded));
}

nb::object span_tuple(const std::optional<ConcreteSpan>& span) {
  if (!span) return nb::none();
  static constexpr const char* kBuffers[] = {"in", "out", "scratch"};
  return nb::make_tuple(kBuffers[static_cast<int>(span->buffer)], span->first, span->count,
                        span->shape);
}

nb::dict action_dict(const ConcreteAction& action) {
  static constexpr const char* kKinds[] = {"send", "receive", "local"};
  nb::dict row;
  row["kind"] = kKinds[static_cast<int>(action.kind)];
  row["lane"] = action.lane;
  row["peer"] = action.peer;
  row["source"] = span_tuple(action.source);
  row["target"] = span_tuple(action.target);
  row["operand"] = span_tuple(action.operand);
  row["incoming_first"] = action.incoming_first;
  row["after_previous"] = action.after_previous;
  return row;
}

nb::list expand_schedule(const Schedule& schedule) {
  nb::list ranks;
  for (const auto& rank : expand(schedule).ranks) {
    nb::list rounds;
    for (const ConcreteRound& round : rank) {
      nb::list actions;
      for (const ConcreteAction& action : round) actions.append(action_dict(action));
      rounds.append(actions);
    }
    ranks.append(rounds);
  }
  return ranks;
}

}  // namespace

void bind_schedule(nb::module_& module) {
  module.def("algorithms", &algorithm_table);
  module.def("delegates", &delegate_table, nb::arg("rank_count"));
  nb::class_<Schedule>(module, "Schedule")
      .def_static("build", &build, nb::arg("collective"), nb::arg("algorithm"),
                  nb::arg("rank_count"), nb::arg("root") = 0, nb::arg("deterministic") = false)
      .def_static(
          "parse", [](const std::string& source) { return take(parse_schedule(source)); },
          nb::arg("text"))
      .def_prop_ro("collective", [](const Schedule& self) { return text(name(self.collective)); })
      .def_ro("algorithm", &Schedule::algorithm)
      .def_ro("rank_count", &Schedule::rank_count)
      .def_ro("chunk_count", &Schedule::chunk_count)
      .def("text", &to_text)
      .def("verify", &verify_schedule)
      .def("expand", &expand_schedule);
  nb::class_<VerifiedSchedule>(module, "VerifiedSchedule")
      .def_static("load", &load, nb::arg("path"))
      .def_prop_ro("schedule", &VerifiedSchedule::schedule, nb::rv_policy::reference_internal)
      .def_prop_ro("root", [](const VerifiedSchedule& self) { return root_rank(self.schedule()); })
      .def_prop_ro("proof", [](const VerifiedSchedule& self) { return report(self.proof()); })
      .def("register", [](const VerifiedSchedule& self) { take(register_schedule(self)); });
}

}  // namespace farandole::bindings
