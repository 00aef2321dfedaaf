#include "graph/graph_blob.h"

namespace zinc {

class GraphBlob {
 public:
  static Status write(const Graph& graph, const LocateWeight& locate, BlobWriter& out) {
    out.put_all<Node>(graph.nodes_);
    out.put_all<LayerCache>(graph.caches_);
    out.put(graph.logits_);
    out.put(graph.hidden_);
    out.put(uint64_t{graph.values_.size()});
    for (const ValueInfo& value : graph.values_) {
      out.put(value.rows);
      out.put(value.element);
      out.put(value.shape);
      out.put_text(value.name);
      if (!value.is_weight()) continue;
      ZINC_TRY(location, locate(value.weight));
      out.put_text(value.weight.format->name);
      out.put(value.weight.shape);
      out.put(location);
    }
    return ok_status();
  }

  static Result<Graph> read(BlobReader& in, const FindWeight& find) {
    Graph graph;
    in.get_all(graph.nodes_);
    in.get_all(graph.caches_);
    graph.logits_ = in.get<Value>();
    graph.hidden_ = in.get<Value>();
    graph.values_.resize(in.get<uint64_t>());
    for (ValueInfo& value : graph.values_) {
      value.rows = in.get<Rows>();
      value.element = in.get<Element>();
      value.shape = in.get<Shape>();
      value.name = in.get_text();
      if (!value.is_weight()) continue;
      value.weight.format = find_format(in.get_text());
      value.weight.shape = in.get<Shape>();
      ZINC_TRY(bytes, find(in.get<WeightLocation>()));
      value.weight.bytes = bytes;
    }
    return graph;
  }
};

Status write_graph(const Graph& graph, const LocateWeight& locate, BlobWriter& out) {
  return GraphBlob::write(graph, locate, out);
}

Result<Graph> read_graph(BlobReader& in, const FindWeight& find) { return GraphBlob::read(in, find); }

}  // namespace zinc
