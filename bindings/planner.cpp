// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "bindings.hpp"
#include "planner/chain_order.hpp"

namespace nb = nanobind;

namespace farandole::bindings {
namespace {

using LinkTable = std::vector<std::vector<std::vector<std::int32_t>>>;  // [from][to]: numbers
using Found = std::pair<std::vector<std::int32_t>, std::int64_t>;       // order, contention

Found chain_order_of_links(const LinkTable& table, std::int32_t root) {
  const nb::gil_scoped_release release;
  const HopLinks links = [&](std::int32_t from, std::int32_t to) {
    return table[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)];
  };
  ChainOrder found = chain_order(static_cast<std::int32_t>(table.size()), links, root);
  return {std::move(found.order), found.contention};
}

Found chain_order_of_tree(std::vector<std::int32_t> parent, std::vector<std::int32_t> node_of,
                          std::int32_t root) {
  const nb::gil_scoped_release release;
  ChainOrder found = chain_order(LinkTree{std::move(parent), std::move(node_of)}, root);
  return {std::move(found.order), found.contention};
}

}  // namespace

void bind_planner(nb::module_& module) {
  using namespace nb::literals;
  module.def("chain_order", &chain_order_of_links, "links"_a, "root"_a);
  module.def("chain_order_of_tree", &chain_order_of_tree, "parent"_a, "node_of"_a, "root"_a);
}

}  // namespace farandole::bindings
