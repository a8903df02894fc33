"""Schemas for protobuf.py of the ONNX messages that a network in evaluation needs, with the numbers of onnx.proto."""

from exporting.protobuf import BYTES, FLOAT, INT, TEXT

FLOAT_ARRAY = 1  # TensorProto.DataType
ATTRIBUTE_KINDS = {"f": 1, "i": 2, "ints": 7}  # AttributeProto.AttributeType

ENTRY = {"key": (1, TEXT), "value": (2, TEXT)}
OPERATORS = {"domain": (1, TEXT), "version": (2, INT)}
TENSOR = {"dims": (1, [INT]), "data_type": (2, INT), "float_data": (4, [FLOAT]), "name": (8, TEXT),
          "raw_data": (9, BYTES), "data_location": (14, INT)}
ATTRIBUTE = {"name": (1, TEXT), "f": (2, FLOAT), "i": (3, INT), "ints": (8, [INT]), "type": (20, INT)}
NODE = {"input": (1, [TEXT]), "output": (2, [TEXT]), "name": (3, TEXT), "op_type": (4, TEXT),
        "attribute": (5, [ATTRIBUTE])}
EXTENT = {"dim_value": (1, INT), "dim_param": (2, TEXT)}
ARRAY_TYPE = {"elem_type": (1, INT), "shape": (2, {"dim": (1, [EXTENT])})}
VALUE = {"name": (1, TEXT), "type": (2, {"tensor_type": (1, ARRAY_TYPE)}), "doc_string": (3, TEXT)}
GRAPH = {"node": (1, [NODE]), "name": (2, TEXT), "initializer": (5, [TENSOR]), "doc_string": (10, TEXT),
         "input": (11, [VALUE]), "output": (12, [VALUE])}
MODEL = {"ir_version": (1, INT), "producer_name": (2, TEXT), "producer_version": (3, TEXT), "doc_string": (6, TEXT),
         "graph": (7, GRAPH), "opset_import": (8, [OPERATORS]), "metadata_props": (14, [ENTRY])}
